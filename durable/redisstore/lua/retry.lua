-- Schedules firing messages again, and counts one more attempt unless the retry is uncounted.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, token (7 bytes), time
--       (see instant), attempts to add (1 or 0), reason.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(3, 5)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  local s, token = states[i], ARGV[5 * i - 1]
  local k = s and has_token(s, token) and kind(s)
  if k == 'F' then
    statuses[i] = DONE
    local at = instant(ARGV[5 * i])
    schedule(id, 'R' .. token .. pack7(at) .. pack4(unpack4(s, 16) + tonumber(ARGV[5 * i + 1])) .. sub(s, 20, 23) .. ZERO7 .. settled(s) .. ARGV[5 * i + 2], at)
    gone[#gone + 1] = id
  elseif k == 'R' then
    statuses[i] = DONE -- by a copy of this call
  else
    statuses[i] = LEASE_LOST
  end
end

schedule_all(LEASED, gone)
count('retried', #gone)
return { sec, usec, table.concat(statuses), '', '' }
