-- Stores new messages.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, 3 producer or '', 4 its sequence number, 5 '1' to replace,
--       6 milliseconds after which a producer is forgotten; then for each message: id, time (see instant), attempts (4 bytes) and body.
-- Result: the statuses as a string, a digit for each message; or a list with the last number of the producer, which is higher.
-- Under OOM nothing is written: the first write is one that the server refuses then.

local producer, replace = ARGV[3], ARGV[5] == '1'
local field = 'p:' .. producer
if producer ~= '' then
  local last = call('HGET', COUNTERS, field)
  if last then
    local number, statuses = string.match(last, '^(%d+) (%d*)$')
    if number == ARGV[4] then return statuses end
    if tonumber(number) > tonumber(ARGV[4]) then return { number } end
  end
end

local ids = column(7, 3)
local scores = call('ZMSCORE', SCHEDULED, unpack(ids))
local states = replace and call('HMGET', STATES, unpack(ids))

-- A record in no set is not overwritten either. Records are asked for where it is not known yet: they come with their bodies.
local known, unsure = {}, {}
for i, id in ipairs(ids) do
  if scores[i] then known[id] = true elseif not replace then unsure[#unsure + 1] = id end
end
if #unsure > 0 then
  local records = call('HMGET', RECORDS, unpack(unsure))
  for i, id in ipairs(unsure) do known[id] = records[i] and true end
end

local before, earliest = head(), nil
local statuses, records, members, replaced = {}, {}, {}, {}
local largest = 0
local enqueued = pack7(now)
for i, id in ipairs(ids) do
  local state = states and states[i]
  if state and kind(state) == 'F' then
    statuses[i] = FIRING
  elseif known[id] and not replace then
    statuses[i] = DUPLICATE
  else
    statuses[i] = DONE
    local at = instant(ARGV[5 + 3 * i])
    if not earliest or at < earliest then earliest = at end
    local n = #records
    records[n + 1], records[n + 2] = id, '\1' .. enqueued .. pack7(at) .. ARGV[6 + 3 * i]
    largest = math.max(largest, #ARGV[6 + 3 * i])
    members[n + 1], members[n + 2] = decimal(at), id
    if state then replaced[#replaced + 1] = id end
  end
end

local stored = #records / 2
store(RECORDS, records)
many('ZADD', SCHEDULED, members)
many('HDEL', STATES, replaced)
many('ZREM', LEASED, replaced)
many('ZREM', DEAD, replaced)
count('enqueued', stored)
if largest > tonumber(call('HGET', COUNTERS, 'largest') or 0) then call('HSET', COUNTERS, 'largest', largest) end -- Claim asks for it

local result = table.concat(statuses)
if producer ~= '' then
  call('HSET', COUNTERS, field, ARGV[4] .. ' ' .. result)
  call('ZADD', PRODUCERS, decimal(now), producer)
  local gone = call('ZRANGEBYSCORE', PRODUCERS, '-inf', decimal(now - tonumber(ARGV[6])), 'LIMIT', 0, 16)
  many('ZREM', PRODUCERS, gone)
  for i = 1, #gone do gone[i] = 'p:' .. gone[i] end
  many('HDEL', COUNTERS, gone)
end
hint(before, earliest)
return result
