-- Precedes scripts on the members of a queue.
-- KEYS: 1 and 2 as in heartbeat.lua, 3 the hash of the queue: see open.lua.
-- ARGV: as in the script, and the number of partitions.

local meta = call('HMGET', KEYS[3], 'deleted', 'partitions', unpack(LIMITS))
if meta[1] then return redis.error_reply('NOQUEUE the queue was deleted') end
if meta[2] and meta[2] ~= ARGV[#ARGV] then
  return redis.error_reply('PARTITIONS ' .. ARGV[#ARGV] .. '; the queue now has ' .. meta[2])
end

local last = tonumber(call('ZSCORE', KEYS[1], '') or 0)
