-- Moves messages that have not begun to another due time, or changes the series of messages. The
-- present run of a firing message continues.
-- KEYS: as in partition.lua.
-- ARGV: 1 to 6 as in call.lua; then for each message: id, time (see instant), '1' to change the
--       series, the new series or '' for none, which keeps the time.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM. The state has the new time as well, so that an audit finds it if the set is lost.

local ids = column(7, 4)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k, at = s and kind(s), instant(ARGV[4 + 4 * i])
  local repeats, series = ARGV[5 + 4 * i] == '1', ARGV[6 + 4 * i]
  if k == 'F' then
    local planned, _, old = rare_parts(s)
    statuses[i] = repeats and old ~= '' and planned ~= NEVER7 and DONE or FIRING
    if series ~= '' then planned = pack7(at) end
    if statuses[i] == DONE then fresh[#fresh + 1], fresh[#fresh + 2] = id, replanned(s, planned, series) end
  elseif is_dead(k) or call('HEXISTS', RECORDS, id) == 0 then
    statuses[i] = NOT_FOUND
  else
    statuses[i] = DONE
    if repeats and series == '' then
      local record = call('HGET', RECORDS, id)
      at = valid_state(s) and due(s) or valid_record(record) and unpack7(record, 9) or now
    end
    s = moved(repeats and valid_state(s) or not repeats and s, 'S', at)
    local planned, _, old = rare_parts(s)
    if not repeats then series = old end
    if repeats or planned ~= ZERO7 then s = replanned(s, series == '' and ZERO7 or pack7(at), series) end
    schedule(id, s, at)
    if k == 'L' then gone[#gone + 1] = id end
  end
end

schedule_all(LEASED, gone)
statuses = table.concat(statuses)
remember(statuses, {})
return { sec, usec, statuses, '', '' }
