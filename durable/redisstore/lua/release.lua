-- Schedules leased and firing messages again as they were, or removes marked ones.
-- KEYS: as in partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, token (7 bytes).
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(3, 2)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone, removed = {}, {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and has_token(s, ARGV[2 + 2 * i]) and kind(s)
  if k == 'L' or k == 'F' then
    statuses[i], gone[#gone + 1] = DONE, id
    local planned = k == 'F' and rare_parts(s) or ZERO7
    if planned == NEVER7 then
      removed[#removed + 1] = id
    else
      local n, at = k == 'F' and unpack7(s, 24) or 0, due(s)
      if planned ~= ZERO7 then at = math.max(at, unpack7(planned, 1)) end
      schedule(id, 'B' .. sub(s, 2, 8) .. pack7(at) .. sub(s, 16, 23) .. ZERO7 .. sub(s, 31, #s - n), at)
    end
  elseif k == 'B' then
    statuses[i] = DONE -- by a copy of this call
  else
    statuses[i] = LEASE_LOST
  end
end

schedule_all(LEASED, gone)
remove('cancelled', removed)
return { sec, usec, table.concat(statuses), '', '' }
