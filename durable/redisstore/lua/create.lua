-- Creates the missing keys of a partition. No key of a partition is ever empty: each hash has a
-- field, and each set a member, that is not a message and that only this script writes. The scores
-- of these members are later than all others. A key without this field or member was lost, and
-- perhaps created again by another script. While a Cluster moves the slot of a partition, it
-- rejects scripts if only some of the keys exist (TRYAGAIN).
-- KEYS: as in partition.lua.
-- ARGV: 1 number of partitions, 2 when the queue was created: see open.lua; 3 '1' if the partition
--       existed before, so that all of its keys may have been lost; 4 the result of an earlier call
--       whose lost keys an audit has repaired, or ''.
-- Result: the time of the last loss and the names of the keys lost since the last repair, or ''; an
--         error if the partition belongs to a queue that was created later.
-- Runs under OOM.
--
-- The counter 'damaged' has the result. The counter 'mending' has the cursor of the search for
-- messages of which only the record is left: see audit_records.lua. Each lost key counts as a lost
-- message, because the number of its messages is unknown.

-- The server stores a small hash with short values as a list and searches it linearly, which takes
-- some microseconds for each id. One long value turns the list into a hash table for good.
local FILLER = '.................................................................'

allow_growth()
local created = call('HGET', COUNTERS, 'created')
if created and tonumber(created) > (tonumber(ARGV[2]) or NEVER) then
  return redis.error_reply('NOQUEUE the queue was deleted, and created again')
end
local lost = {}
local function create(i, command, ...)
  if call(command, KEYS[i], ...) == 1 then lost[#lost + 1] = KEYS[i] end
end
for i = 1, 2 do create(i, 'HSETNX', '', FILLER) end
for i = 3, 5 do create(i, 'ZADD', 'NX', decimal(LAST), '') end
create(6, 'HSETNX', 'created', ARGV[2])
call('HSET', COUNTERS, 'created', ARGV[2], 'partitions', ARGV[1])

local damaged = call('HGET', COUNTERS, 'damaged') or ''
if #lost > 0 and (#lost < #KEYS or ARGV[3] == '1') then
  local names = sub(damaged, (string.find(damaged, ' ', 1, true) or #damaged + 1))
  for _, key in ipairs(lost) do
    if not string.find(names, key, 1, true) then names = names .. ' ' .. key end
  end
  damaged = decimal(now) .. names
  count('lost', #lost)
  call('HSET', COUNTERS, 'damaged', damaged, 'mending', '0')
elseif damaged ~= '' and damaged == ARGV[4] then
  call('HDEL', COUNTERS, 'damaged')
end
return { damaged }
