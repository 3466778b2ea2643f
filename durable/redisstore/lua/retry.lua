-- Firing messages are scheduled again, with one attempt more.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, token (7 bytes), time (see instant), reason.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(3, 4)
local states = call('HMGET', STATES, unpack(ids))
local before, earliest = head(), nil
local statuses, gone, fresh, members = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local s, token = states[i], ARGV[4 * i]
  local k = s and holds(s, token) and kind(s)
  if k == 'F' then
    statuses[i] = DONE
    local at = instant(ARGV[4 * i + 1])
    if not earliest or at < earliest then earliest = at end
    local n = #fresh
    fresh[n + 1] = id
    fresh[n + 2] = 'R' .. token .. pack7(at) .. pack4(unpack4(s, 16) + 1) .. sub(s, 20, 30) .. ARGV[4 * i + 2]
    members[n + 1], members[n + 2] = decimal(at), id
    gone[#gone + 1] = id
  elseif k == 'R' then
    statuses[i] = DONE -- it was this call
  else
    statuses[i] = LEASE_LOST
  end
end

allow_growth()
many('ZREM', LEASED, gone)
store(STATES, fresh)
many('ZADD', SCHEDULED, members)
count('retried', #gone)
hint(before, earliest)
return { sec, usec, table.concat(statuses), '', '' }
