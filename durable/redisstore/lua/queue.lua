-- Precedes scripts on the members of a queue.
-- KEYS: 1 and 2 as in heartbeat.lua, 3 the hash of the queue: see open.lua. ARGV: those of the
--       script.

if call('HEXISTS', KEYS[3], 'deleted') == 1 then return redis.error_reply('NOQUEUE the queue was deleted') end

local last = tonumber(call('ZSCORE', KEYS[1], '') or 0)
