-- Schedules dead letters again, with attempts and crashes set to 0, and recurring messages that are
-- scheduled at Never.
-- KEYS: as in partition.lua.
-- ARGV: 1 to 6 as in call.lua; then for each message: id, time (see instant), the time (7 bytes) at
--       which it died or '' for any.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids, incarnations = column(7, 3), column(9, 3)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and kind(s)
  local _, _, series = rare_parts(s or '')
  local died = is_dead(k)
  local waits = not died and series ~= '' and due(s) == NEVER and incarnations[i] == ''
  if (waits or died and has_died_at(s, incarnations[i])) and call('HEXISTS', RECORDS, id) == 1 then
    statuses[i] = DONE
    local at = instant(ARGV[5 + 3 * i])
    local planned = series == '' and ZERO7 or pack7(at)
    schedule(id, 'S' .. sub(s, 2, 8) .. pack7(at) .. ZERO15 .. rare(planned, ZERO4, series) .. sub(s, 33 + rare_bytes(s)), at)
    if died then gone[#gone + 1] = id end
  else
    statuses[i] = NOT_FOUND
  end
end

schedule_all(DEAD, gone)
subtract_dead(gone)
statuses = table.concat(statuses)
remember(statuses, {})
return { sec, usec, statuses, '', '' }
