-- A member of the consumers is there for another while, or leaves.
-- KEYS: 1 the set of members, by the time at which they are gone.
-- ARGV: 1 member, 2 milliseconds (0: it leaves).
-- Result: all members that are there.
-- Runs under OOM: the first write removes.

call('ZREM', KEYS[1], '')
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', decimal(now))
if ARGV[2] == '0' then
  call('ZREM', KEYS[1], ARGV[1])
else
  call('ZADD', KEYS[1], decimal(math.min(NEVER, soon + tonumber(ARGV[2]))), ARGV[1])
end
return call('ZRANGE', KEYS[1], 0, -1)
