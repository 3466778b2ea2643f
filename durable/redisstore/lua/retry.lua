-- Schedules firing messages that have failed, were postponed, or were handled and are due again.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, token (7 bytes), time
--       (see instant), '1' if it was postponed, '1' if it is due again, reason.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

-- postponed returns the rare data of a state with its length, and with one more postponement.
local function postponed(s)
  local n = rare_bytes(s)
  if n == 0 then return '\0\11' .. ZERO7 .. pack4(1) end
  return sub(s, 31, 39) .. pack4(unpack4(s, 40) + 1) .. sub(s, 44, 32 + n)
end

local ids = column(3, 6)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone, failed, again = {}, {}, 0, 0
for i, id in ipairs(ids) do
  local s, token = states[i], ARGV[6 * i - 2]
  local k = s and has_token(s, token) and kind(s)
  if k == 'F' then
    statuses[i] = DONE
    local at, numbers, rare = instant(ARGV[6 * i - 1]), sub(s, 16, 23), settled(s) -- numbers: attempts and crashes
    if ARGV[6 * i] == '1' then
      rare = postponed(s)
    elseif ARGV[6 * i + 1] == '1' then
      numbers, again = ZERO8, again + 1
    else
      numbers, failed = pack4(unpack4(s, 16) + 1) .. sub(s, 20, 23), failed + 1
    end
    schedule(id, 'R' .. token .. pack7(at) .. numbers .. ZERO7 .. rare .. ARGV[6 * i + 2], at)
    gone[#gone + 1] = id
  elseif k == 'R' then
    statuses[i] = DONE -- by a copy of this call
  else
    statuses[i] = LEASE_LOST
  end
end

schedule_all(LEASED, gone)
count('retried', failed)
count('acked', again)
count('enqueued', again)
return { sec, usec, table.concat(statuses), '', '' }
