-- A member of the consumers is there for another while, or leaves.
-- KEYS: 1 the set of members, by the time at which they are gone; and the empty member, by the time of the last call.
-- ARGV: 1 member, 2 milliseconds (0: it leaves).
-- Result: all members that are there.
-- Runs under OOM: the first write removes.

local last = tonumber(call('ZSCORE', KEYS[1], '') or 0)
call('ZREM', KEYS[1], '')

-- If the clock was set back, all members move with it. Otherwise one that is gone would stay for as long as the step.
if last > now then
  local all = call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do call('ZADD', KEYS[1], decimal(tonumber(all[i + 1]) + now - last), all[i]) end
end

call('ZREMRANGEBYSCORE', KEYS[1], '-inf', decimal(now))
if ARGV[2] == '0' then
  call('ZREM', KEYS[1], ARGV[1])
else
  call('ZADD', KEYS[1], decimal(math.min(NEVER, soon + tonumber(ARGV[2]))), ARGV[1])
end
local members = call('ZRANGE', KEYS[1], 0, -1)
if #members > 0 then call('ZADD', KEYS[1], decimal(now), '') end -- a queue without consumers has no such key
return members
