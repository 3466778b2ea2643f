-- Adds a consumer to the members, renews it, or removes it.
-- KEYS: 1 the set of members, by the time at which they expire; and the empty member, by the time
--       of the last call. 2 the hash of the members' data. 3 as in queue.lua.
-- ARGV: 1 member, 2 milliseconds until it expires (0: it leaves), 3 its data.
-- Result: as in members.lua, which follows.
-- Runs under OOM: the first write removes something.

call('ZREM', KEYS[1], '')

-- If the clock was set back, all members move with it. Otherwise a member whose process has ended
-- would stay longer by the size of the step.
if last > now then
  local all = call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do call('ZADD', KEYS[1], decimal(tonumber(all[i + 1]) + now - last), all[i]) end
end

local function remove(member)
  call('ZREM', KEYS[1], member)
  call('HDEL', KEYS[2], member)
end

for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[1], '-inf', decimal(now))) do remove(member) end
if ARGV[2] == '0' then
  remove(ARGV[1])
else
  call('ZADD', KEYS[1], decimal(math.min(NEVER, now_ceil + tonumber(ARGV[2]))), ARGV[1])
  call('HSET', KEYS[2], ARGV[1], ARGV[3])
end

-- If the set was deleted, the hash has entries that are not members. A queue without consumers has
-- neither key.
local members = call('ZRANGE', KEYS[1], 0, -1)
if call('HLEN', KEYS[2]) > #members then
  for _, member in ipairs(call('HKEYS', KEYS[2])) do
    if not call('ZSCORE', KEYS[1], member) then call('HDEL', KEYS[2], member) end
  end
end
if #members > 0 then call('ZADD', KEYS[1], decimal(now), '') end
last = now -- for members.lua
