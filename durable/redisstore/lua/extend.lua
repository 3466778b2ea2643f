-- Moves the ends of the leases on leased and firing messages.
-- KEYS: as in partition.lua.
-- ARGV: for each message: id, token (7 bytes), milliseconds if the message has not begun, and
--       milliseconds if it has.
-- Result: sec, usec, statuses, '', ends of leases (7 bytes each).
-- Runs under OOM.

local ids = column(1, 4)
local states = call('HMGET', STATES, unpack(ids))
local statuses, ends, leases = {}, {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = valid_state(s) and has_token(s, ARGV[4 * i - 2]) and kind(s)
  if k == 'L' or k == 'F' then
    local lease = lease_end(due(s), tonumber(ARGV[k == 'L' and 4 * i - 1 or 4 * i]))
    statuses[i], ends[i] = k == 'F' and rare_parts(s) == NEVER7 and INTERRUPTED or DONE, pack7(lease)
    leases[#leases + 1] = decimal(lease)
    leases[#leases + 1] = id
  else
    statuses[i], ends[i] = LEASE_LOST, ZERO7
  end
end

allow_growth()
call_list('ZADD', LEASED, leases)
return { sec, usec, table.concat(statuses), '', table.concat(ends) }
