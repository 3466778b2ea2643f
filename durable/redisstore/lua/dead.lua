-- Read before the scripts that make dead letters: the bounds of their number and age.
-- KEYS: those of partition.lua. ARGV: those of the script.

-- bound_dead removes the oldest dead letters beyond limit, and those older than age in milliseconds: up to 256 in a call.
local function bound_dead(limit, age)
  local gone = call('ZRANGEBYSCORE', DEAD, '-inf', decimal(now - age), 'LIMIT', 0, 256)
  local over = math.min(256, call('ZCARD', DEAD) - limit)
  if over > #gone then gone = call('ZRANGE', DEAD, 0, over - 1) end
  many('ZREM', DEAD, gone)
  many('HDEL', RECORDS, gone)
  many('HDEL', STATES, gone)
end
