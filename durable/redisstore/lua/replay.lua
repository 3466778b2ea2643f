-- Dead letters are scheduled again, with no attempts and no crashes.
-- KEYS: those of partition.lua.
-- ARGV: 1 to 6 as in call.lua; then for each message: id, time (see instant).
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(7, 2)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and kind(s)
  if is_dead(k) and call('HEXISTS', RECORDS, id) == 1 then
    statuses[i] = DONE
    local at = instant(ARGV[6 + 2 * i])
    schedule(id, 'S' .. sub(s, 2, 8) .. pack7(at) .. ZERO4 .. ZERO4 .. ZERO7 .. sub(s, 31), at)
    gone[#gone + 1] = id
  else
    statuses[i] = NOT_FOUND
  end
end

schedule_all(DEAD, gone)
subtract_dead(gone)
statuses = table.concat(statuses)
remember(statuses, {})
return { sec, usec, statuses, '', '' }
