-- Ends leases that are over, at most 256 of them, and leases messages in the order of due times and ids.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, 3 horizon in ms, 4 number of messages, 5 bytes of bodies, 6 visibility in ms,
--       7 crashes after which a message is dead (0: none), 8 dead letters that are kept, 9 and how long in ms.
-- Result: sec, usec, the next due time or '0', the end of the first lease or '0', the ends of leases (7 bytes each);
--         then for each message: id, record, state.
-- Runs under OOM: each part removes something before it adds.

local before = head()

local over = call('ZRANGEBYSCORE', LEASED, '-inf', decimal(now), 'LIMIT', 0, 256)
if #over > 0 then
  local limit, crashed, buried = tonumber(ARGV[7]), 0, 0
  local states = call('HMGET', STATES, unpack(over))
  local fresh, back, dead = {}, {}, {}
  for i, id in ipairs(over) do
    local s = sound_state(states[i])
    if not s then -- the state was lost: what the record says is the best there is
      local record = call('HGET', RECORDS, id)
      s = sound_record(record) and moved(false, 'L', unpack7(record, 9))
    end
    if s and (kind(s) == 'L' or kind(s) == 'F') then
      local crashes = unpack4(s, 20)
      local k = 'S'
      if kind(s) == 'F' then
        crashes, crashed = crashes + 1, crashed + 1
        if limit > 0 and crashes >= limit then k, buried = 'X', buried + 1 end
      end
      local n = #fresh
      fresh[n + 1] = id
      fresh[n + 2] = k .. sub(s, 2, 19) .. pack4(crashes) .. (k == 'X' and pack7(now) or ZERO7) .. sub(s, 31)
      local set = k == 'X' and dead or back
      set[#set + 1] = decimal(k == 'X' and now or due(s))
      set[#set + 1] = id
    end
  end
  many('ZREM', LEASED, over)
  store(STATES, fresh)
  many('ZADD', SCHEDULED, back)
  many('ZADD', DEAD, dead)
  count('crashed', crashed)
  count('buried', buried)
end
bound_dead(tonumber(ARGV[8]), tonumber(ARGV[9]))

local result = { sec, usec, '0', '0', '' }
local max = tonumber(ARGV[4])
local found = {}
if max > 0 then
  found = call('ZRANGEBYSCORE', SCHEDULED, '-inf', decimal(now + tonumber(ARGV[3])), 'WITHSCORES', 'LIMIT', 0, max)
end

-- Lengths are asked for where the bodies might not fit, so that no more than what fits is copied.
local ids, dues = {}, {}
local room, known = tonumber(ARGV[5]), call('HMGET', COUNTERS, 'largest', 'token')
local ample = known[1] and tonumber(known[1]) * max <= room
for i = 1, #found, 2 do
  if not ample then
    room = room - math.max(0, call('HSTRLEN', RECORDS, found[i]) - 19)
    if room < 0 and i > 1 then break end
  end
  ids[#ids + 1], dues[#dues + 1] = found[i], tonumber(found[i + 1])
end

if #ids > 0 then
  local records = call('HMGET', RECORDS, unpack(ids))
  local states = call('HMGET', STATES, unpack(ids))
  -- Tokens rise even where a failover has lost the last ones, unless the clock has been set back as well.
  local token = math.max(tonumber(known[2] or 0), tonumber(sec) * 1000000 + tonumber(usec) - 1)
  local visibility = tonumber(ARGV[6])
  local fresh, leases, ends, n = {}, {}, {}, 0
  local last, lease, packed -- most leases end at the same time
  for i, id in ipairs(ids) do
    local record, s = records[i], sound_state(states[i])
    if sound_record(record) then -- else it is a stray, or damaged, and goes from the set: an audit tells of it
      local at = lease_end(dues[i], visibility)
      if at ~= last then last, lease, packed = at, decimal(at), pack7(at) end
      n = n + 1
      ends[n] = packed
      local state
      if s then
        state = 'L' .. pack7(token + n) .. pack7(dues[i]) .. sub(s, 16, 23) .. ZERO7 .. sub(s, 31)
      else
        -- The due time of the record is not asked for: the message may have been moved and its state lost.
        state = 'L' .. pack7(token + n) .. pack7(dues[i]) .. ZERO15
      end
      fresh[2 * n - 1], fresh[2 * n] = id, state
      leases[2 * n - 1], leases[2 * n] = lease, id
      result[3 * n + 3], result[3 * n + 4], result[3 * n + 5] = id, record, state
    end
  end
  result[5] = table.concat(ends)
  call('ZREM', SCHEDULED, unpack(ids))
  store(STATES, fresh)
  many('ZADD', LEASED, leases)
  call('HSET', COUNTERS, 'token', decimal(token + n))
end

local after = head()
hint(before, after)
if after then result[3] = decimal(after) end
local first = call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')
if first[2] then result[4] = decimal(tonumber(first[2])) end
return result
