-- Read before the scripts that make dead letters: the bounds of their number and age.
-- KEYS: those of partition.lua. ARGV: those of the script.

-- bound_dead removes the oldest dead letters beyond limit, and those older than age in milliseconds: up to 256 in a call.
local function bound_dead(limit, age)
  local gone = call('ZRANGEBYSCORE', DEAD, '-inf', decimal(now - age), 'LIMIT', 0, 256)
  local over = math.min(256, call('ZCARD', DEAD) - limit)
  if over > #gone then gone = call('ZRANGE', DEAD, 0, over - 1) end
  if #gone == 0 then return end
  call('ZREM', DEAD, unpack(gone))

  -- Where a key was lost, a message may be among the dead that has been put or rescheduled since: its record stays.
  local scheduled, leased = call('ZMSCORE', SCHEDULED, unpack(gone)), call('ZMSCORE', LEASED, unpack(gone))
  local removed = {}
  for i, id in ipairs(gone) do
    if not (scheduled[i] or leased[i]) then removed[#removed + 1] = id end
  end
  many('HDEL', RECORDS, removed)
  many('HDEL', STATES, removed)
end
