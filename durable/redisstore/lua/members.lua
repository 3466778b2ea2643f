-- Lists the members.
-- KEYS: as in heartbeat.lua.
-- ARGV: none.
-- Result: the partitions and the limits of the queue, each or '': see open.lua; for each member:
--         name, the time at which it expires, its data or ''.

local back = math.max(0, last - now) -- as in heartbeat.lua
local all = call('ZRANGEBYSCORE', KEYS[1], '(' .. decimal(now + back), '+inf', 'WITHSCORES')
local result = {}
for i = 1, 1 + #LIMITS do result[i] = meta[i + 1] or '' end
for i = 1, #all, 2 do
  local n = #result
  result[n + 1], result[n + 2] = all[i], decimal(tonumber(all[i + 1]) - back)
  result[n + 3] = call('HGET', KEYS[2], all[i]) or ''
end
return result
