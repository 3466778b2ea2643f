-- Removes dead letters.
-- KEYS: as in partition.lua.
-- ARGV: 1 to 6 as in call.lua; then for each message: id, the time (7 bytes) at which it died or ''
--       for any.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM: it removes something first.

local ids, incarnations = column(7, 2), column(8, 2)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  statuses[i] = NOT_FOUND
  if states[i] and is_dead(kind(states[i])) and has_died_at(states[i], incarnations[i]) then
    statuses[i] = DONE
    gone[#gone + 1] = id
  end
end

statuses = table.concat(statuses)
allow_growth()
call_list('ZREM', DEAD, gone)
subtract_dead(gone)
call_list('HDEL', RECORDS, gone)
call_list('HDEL', STATES, gone)
remember(statuses, {})
return { sec, usec, statuses, '', '' }
