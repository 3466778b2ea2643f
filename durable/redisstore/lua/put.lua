-- Stores new messages.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, 3 producer or '', 4 its sequence number, 5 '1' to replace,
--       6 milliseconds after which a producer is forgotten; then for each message: id, time (see instant), attempts (4 bytes) and body.
-- Result: the statuses as a string, a digit for each message; or a list with the last number of the producer, which is higher.
-- Under OOM nothing is stored: the first write is one that the server refuses then.

local producer, replace, age = ARGV[3], ARGV[5] == '1', tonumber(ARGV[6])
local field = 'p:' .. producer
local counters = call('HMGET', COUNTERS, 'enqueued', 'largest', field)
local largest = tonumber(counters[2])

-- What is kept of a producer is the number of its last call, when it was entered among the producers, and the statuses.
local number, entered, statuses
if producer ~= '' and counters[3] then
  number, entered, statuses = string.match(counters[3], '^(%d+) (%d+) (%d*)$')
  if number == ARGV[4] then
    -- WAIT waits for the last write of its connection, and this may be another one than that of the first call.
    allow_growth()
    call('HSET', COUNTERS, field, counters[3])
    return statuses
  end
  if number and tonumber(number) > tonumber(ARGV[4]) then return { number } end
end

-- A record in no set is not overwritten either. Records come with their bodies, so large ones are asked for their lengths.
local ids, known = column(7, 3), {}
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
local records, members, replaced, most, freed = {}, {}, {}, 0, 0
local enqueued = pack7(now)
local time, at, score, prefix -- those of the last message: most have the same delay
statuses = {}
for i, id in ipairs(ids) do
  local state = states and states[i]
  if state and kind(state) == 'F' then
    statuses[i] = FIRING
  elseif known[id] then
    statuses[i] = DUPLICATE
  else
    statuses[i] = DONE
    if ARGV[5 + 3 * i] ~= time then
      time = ARGV[5 + 3 * i]
      at = instant(time)
      score, prefix = decimal(at), '\1' .. enqueued .. pack7(at)
    end
    if not earliest or at < earliest then earliest = at end
    local n = #records
    records[n + 1], records[n + 2] = id, prefix .. ARGV[6 + 3 * i]
    most = math.max(most, #ARGV[6 + 3 * i])
    members[n + 1], members[n + 2] = score, id
    if replace then replaced[#replaced + 1] = id end -- also without a state, which may have been lost
    if state and is_dead(kind(state)) then freed = freed + math.max(0, call('HSTRLEN', RECORDS, id) - 19) end
  end
end

local stored = #records / 2
store(RECORDS, records)
many('ZADD', SCHEDULED, members)
many('HDEL', STATES, replaced)
many('ZREM', LEASED, replaced)
many('ZREM', DEAD, replaced)
if freed > 0 then call('HINCRBY', COUNTERS, 'dead_bytes', -freed) end

-- Claim asks for the largest size. Where the counters were lost while there were messages, it stays unknown until the partition is empty.
local fresh = { 'enqueued', decimal((tonumber(counters[1]) or 0) + stored) }
if not largest and call('HLEN', RECORDS) <= stored + 1 then largest = 0 end -- there is the filler as well
if largest and most > largest then fresh[3], fresh[4] = 'largest', most end

local result = table.concat(statuses)
if producer ~= '' then
  if not entered or now - tonumber(entered) > age / 24 then
    entered = decimal(now)
    call('ZADD', PRODUCERS, entered, producer)
    local gone = call('ZRANGEBYSCORE', PRODUCERS, '-inf', decimal(now - age - age / 24), 'LIMIT', 0, 16)
    many('ZREM', PRODUCERS, gone)
    for i = 1, #gone do gone[i] = 'p:' .. gone[i] end
    many('HDEL', COUNTERS, gone)
  end
  fresh[#fresh + 1], fresh[#fresh + 2] = field, ARGV[4] .. ' ' .. entered .. ' ' .. result
end
call('HSET', COUNTERS, unpack(fresh))
hint(before, earliest)
return result
