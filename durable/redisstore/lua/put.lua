-- Stores new messages.
-- KEYS: as in partition.lua.
-- ARGV: 1 to 6 as in call.lua, 7 '1' to replace; then for each message: id, time (see instant),
--       attempts (4 bytes) and body, series or ''.
-- Result: sec, usec, statuses, '', ''. If the partition is too large (size.lua), the error
--         PARTITIONFULL.
-- Under OOM nothing is stored: the server rejects the first write.

local replace = ARGV[7] == '1'
local largest = tonumber(counters[2])

-- A record that is in no set is not overwritten either. Reading a record reads its body, so if
-- bodies are large only their lengths are read.
local ids, known = column(8, 4), {}
if not replace then
  if largest and largest * #ids <= 65536 then
    for i, record in ipairs(call('HMGET', RECORDS, unpack(ids))) do
      if record then known[ids[i]] = true end
    end
  else
    for _, id in ipairs(ids) do known[id] = call('HSTRLEN', RECORDS, id) > 0 end
  end
end

local states = replace and call('HMGET', STATES, unpack(ids))
local before, earliest = head(), nil
local records, members, replaced, fresh_states, most, freed = {}, {}, {}, {}, 0, 0
local enqueued = pack7(now)
local time, at, score, prefix -- of the last message; most messages have the same delay
local statuses = {}
for i, id in ipairs(ids) do
  local state, series = states and states[i], ARGV[4 * i + 7]
  local firing, planned, _, old = state and kind(state) == 'F'
  if firing then planned, _, old = rare_parts(state) end
  if firing and (series == '' or old == '' or planned == NEVER7) then
    statuses[i] = FIRING
  elseif known[id] then
    state = call('HGET', STATES, id)
    statuses[i] = state and is_dead(kind(state)) and IS_DEAD or DUPLICATE
  else
    statuses[i] = DONE
    local body = ARGV[4 * i + 6]
    if ARGV[4 * i + 5] ~= time then
      time = ARGV[4 * i + 5]
      at = instant(time)
      score, prefix = decimal(at), '\1' .. enqueued .. pack7(at)
    end
    local n, m, k = #records, #members, #fresh_states
    records[n + 1], records[n + 2] = id, prefix .. body
    most = math.max(most, #body)
    if not firing then
      if not earliest or at < earliest then earliest = at end
      members[m + 1], members[m + 2] = score, id
      if replace then replaced[#replaced + 1] = id end -- even if the state was lost
    end
    if series ~= '' then
      local s = firing and state or 'S' .. ZERO7 .. pack7(at) .. ZERO15 .. ZERO2
      fresh_states[k + 1], fresh_states[k + 2] = id, replanned(s, pack7(at), series)
    end
    if state and is_dead(kind(state)) then freed = freed + math.max(0, call('HSTRLEN', RECORDS, id) - 19) end
  end
end

local full = size_error(records, largest)
if full then return full end
local stored = #records / 2
store(RECORDS, records)
call_list('ZADD', SCHEDULED, members)
call_list('HDEL', STATES, replaced)
store(STATES, fresh_states)
call_list('ZREM', LEASED, replaced)
call_list('ZREM', DEAD, replaced)
if freed > 0 then call('HINCRBY', COUNTERS, 'dead_bytes', -freed) end

-- claim.lua reads the largest size. If the counters were lost while there were messages, the size
-- is unknown until the partition is empty.
local fresh = { 'enqueued', decimal((tonumber(counters[1]) or 0) + stored) }
if not largest and call('HLEN', RECORDS) <= stored + 1 then largest = 0 end -- with the filler
if largest and most > largest then fresh[3], fresh[4] = 'largest', most end

statuses = table.concat(statuses)
remember(statuses, fresh)
hint(before, earliest)
return { sec, usec, statuses, '', '' }
