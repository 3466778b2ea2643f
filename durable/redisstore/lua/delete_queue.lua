-- Begins to delete a queue, so that no call opens it and no consumer joins it, or ends the deletion
-- after the partitions are gone. The field deleted of the queue is 'begun', or 'done' for 30 days.
-- KEYS: as in queue.lua.
-- ARGV: 1 version of the format, 2 '1' to end, 3 when the queue was created, as the first call
--       returned it.
-- Result: partitions, when the queue was created.
-- Runs under OOM: the first write removes something.

local meta = call('HMGET', KEYS[3], 'version', 'partitions', 'created', 'deleted')
if call('EXISTS', KEYS[3]) == 0 or meta[4] == 'done' then return redis.error_reply('NOQUEUE there is no such queue') end
if ARGV[2] == '1' and (meta[4] ~= 'begun' or (meta[3] or '') ~= ARGV[3]) then
  return redis.error_reply('NOQUEUE another call has deleted the queue')
end
if meta[1] ~= ARGV[1] then return redis.error_reply('OTHERVERSION the queue has another format') end

call('UNLINK', KEYS[1], KEYS[2])
call('HDEL', KEYS[3], '')
call('HSET', KEYS[3], 'deleted', ARGV[2] == '1' and 'done' or 'begun')
if ARGV[2] == '1' then call('EXPIRE', KEYS[3], 2592000) end
return { meta[2] or '1024', meta[3] or '' } -- or as many as a queue can have
