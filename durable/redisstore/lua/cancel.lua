-- Messages that have not begun are removed.
-- KEYS: those of partition.lua.
-- ARGV: for each message: id.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM: it only removes, but for a counter.

local states = call('HMGET', STATES, unpack(ARGV))
local statuses, gone = {}, {}
for i, id in ipairs(ARGV) do
  local k = states[i] and kind(states[i])
  if k == 'F' then
    statuses[i] = FIRING
  elseif not is_dead(k) and call('HDEL', RECORDS, id) == 1 then
    statuses[i] = DONE
    gone[#gone + 1] = id
  else
    statuses[i] = NOT_FOUND
  end
end

many('HDEL', STATES, gone)
many('ZREM', SCHEDULED, gone)
many('ZREM', LEASED, gone)
count('cancelled', #gone)
return { sec, usec, table.concat(statuses), '', '' }
