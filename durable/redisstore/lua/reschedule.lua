-- Moves messages that have not begun to another due time.
-- KEYS: those of partition.lua.
-- ARGV: 1 to 6 as in call.lua; then for each message: id, time (see instant).
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM. The state has the new time as well, so that an audit finds it if the set is lost.

local ids = column(7, 2)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and kind(s)
  if k == 'F' then
    statuses[i] = FIRING
  elseif is_dead(k) or call('HEXISTS', RECORDS, id) == 0 then
    statuses[i] = NOT_FOUND
  else
    statuses[i] = DONE
    local at = instant(ARGV[6 + 2 * i])
    schedule(id, moved(s, 'S', at), at)
    if k == 'L' then gone[#gone + 1] = id end
  end
end

schedule_all(LEASED, gone)
statuses = table.concat(statuses)
remember(statuses, {})
return { sec, usec, statuses, '', '' }
