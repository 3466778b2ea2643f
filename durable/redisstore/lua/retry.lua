-- Schedules firing messages that have failed, were postponed, or were handled and are due again.
-- The script removes messages that are marked, or whose series has ended.
-- KEYS: as in partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, token (7 bytes), time
--       (see instant), '1' if it was postponed, '1' if it is due again, reason, the planned time (7
--       bytes) of the run that is over or ''.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(3, 7)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone, acked, cancelled, failed, again = {}, {}, {}, {}, 0, 0
for i, id in ipairs(ids) do
  local first = 7 * i - 4
  local s, token, reason = states[i], ARGV[first + 1], ARGV[first + 5]
  local k = s and has_token(s, token) and kind(s)
  if k == 'F' then
    statuses[i], gone[#gone + 1] = DONE, id
    local over, run = ARGV[first + 4] == '1', ARGV[first + 6]
    if not over then run = '' end
    local handled = over and (run == '' or reason == '')
    local planned, postponements, series = rare_parts(s)
    if planned == NEVER7 or run ~= '' and series == '' then
      local ended = handled and acked or cancelled
      ended[#ended + 1] = id
    else
      local at, numbers = instant(ARGV[first + 2]), sub(s, 16, 23) -- numbers: attempts and crashes
      if ARGV[first + 3] == '1' then
        postponements = pack4(unpack4(postponements, 1) + 1)
      else
        postponements = ZERO4
        numbers = over and ZERO8 or pack4(unpack4(s, 16) + 1) .. sub(s, 20, 23)
        if handled then again = again + 1 else failed = failed + 1 end
      end
      if run == '' then
        if planned ~= ZERO7 then at = math.max(at, unpack7(planned, 1)) end
      else
        if run ~= planned then at = math.max(unpack7(planned, 1), now) end
        planned = pack7(at)
      end
      schedule(id, 'R' .. token .. pack7(at) .. numbers .. ZERO7 .. rare(planned, postponements, series) .. reason, at)
    end
  elseif k == 'R' then
    statuses[i] = DONE -- by a copy of this call
  else
    statuses[i] = LEASE_LOST
  end
end

schedule_all(LEASED, gone)
remove('acked', acked)
remove('cancelled', cancelled)
count('retried', failed)
count('acked', again)
count('enqueued', again)
return { sec, usec, table.concat(statuses), '', '' }
