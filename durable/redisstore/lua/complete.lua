-- Notes that the keys of all partitions of a queue exist, unless the queue was created again.
-- KEYS: 1 the hash of the queue: see open.lua.
-- ARGV: 1 when the queue was created.
-- Result: '1'.
-- Runs under OOM: the first write removes something.

call('HDEL', KEYS[1], '')
if call('HGET', KEYS[1], 'created') == ARGV[1] then call('HSET', KEYS[1], 'complete', 1) end
return '1'
