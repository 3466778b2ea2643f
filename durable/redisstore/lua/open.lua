-- Creates a queue or joins an existing one.
-- KEYS: 1 the hash of the queue's version and partitions.
-- ARGV: 1 version of the format, 2 partitions (0: any number), 3 partitions of a new queue if 2 is
--       0, 4 '1' to create no queue.
-- Result: type of the key before the call, version, partitions, when the queue was created, '1' if
--         the keys of all partitions exist; '' for a missing field. The type is 'deleting' after an
--         interrupted deletion: see delete_queue.lua.

local before = call('TYPE', KEYS[1]).ok
local deleted = before == 'hash' and call('HGET', KEYS[1], 'deleted')
if deleted == 'begun' then return { 'deleting', '', '', '', '' } end
local created = now -- later than that of a deleted queue
if deleted then
  before, created = 'none', math.max(now, tonumber(call('HGET', KEYS[1], 'created') or 0) + 1)
  if ARGV[4] ~= '1' then call('UNLINK', KEYS[1]) end
end
if before == 'none' and ARGV[4] == '1' then
  return { before, '', '', '', '' }
elseif before == 'none' then
  local partitions = ARGV[2] == '0' and ARGV[3] or ARGV[2]
  call('HSET', KEYS[1], 'version', ARGV[1], 'partitions', partitions, 'created', decimal(created))
elseif before ~= 'hash' then
  return { before, '', '', '', '' }
end
local meta = call('HMGET', KEYS[1], 'version', 'partitions', 'created', 'complete')
return { before, meta[1] or '', meta[2] or '', meta[3] or '', meta[4] or '' }
