-- Deletes a partition. For 30 days a field of the counters notes the deletion, so that callers that
-- have the queue open learn of it: see partition.lua.
-- KEYS: as in partition.lua.
-- ARGV: 1 when the queue was created: see open.lua.
-- Result: an empty list, or an error if the partition belongs to a queue that was created later.
-- Runs under OOM: the first write removes something.

local created = call('HGET', KEYS[6], 'created')
if created and tonumber(created) > (tonumber(ARGV[1]) or NEVER) then
  return redis.error_reply('NOQUEUE the queue was deleted, and created again')
end
call('UNLINK', unpack(KEYS))
call('HSET', KEYS[6], 'deleted', ARGV[1])
call('EXPIRE', KEYS[6], 2592000)
return {}
