-- Creates a queue or joins an existing one.
-- KEYS: 1 the hash of the queue's version and partitions.
-- ARGV: 1 version of the format, 2 partitions (0: any number), 3 partitions of a new queue if 2 is
--       0, 4 '1' to create no queue.
-- Result: type of the key before the call, version, partitions; '' for a missing field.

local before = call('TYPE', KEYS[1]).ok
if before == 'none' and ARGV[4] == '1' then
  return { before, '', '' }
elseif before == 'none' then
  local partitions = ARGV[2] == '0' and ARGV[3] or ARGV[2]
  call('HSET', KEYS[1], 'version', ARGV[1], 'partitions', partitions, 'created', decimal(now))
elseif before ~= 'hash' then
  return { before, '', '' }
end
local meta = call('HMGET', KEYS[1], 'version', 'partitions')
return { before, meta[1] or '', meta[2] or '' }
