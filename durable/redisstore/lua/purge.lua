-- Dead letters are removed.
-- KEYS: those of partition.lua.
-- ARGV: for each message: id.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM: it only removes.

local states = call('HMGET', STATES, unpack(ARGV))
local statuses, gone = {}, {}
for i, id in ipairs(ARGV) do
  statuses[i] = NOT_FOUND
  if states[i] and is_dead(kind(states[i])) then
    statuses[i] = DONE
    gone[#gone + 1] = id
  end
end

many('ZREM', DEAD, gone)
subtract_dead(gone)
many('HDEL', RECORDS, gone)
many('HDEL', STATES, gone)
return { sec, usec, table.concat(statuses), '', '' }
