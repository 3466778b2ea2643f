-- Leased and firing messages are scheduled again as they were.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, token (7 bytes).
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(3, 2)
local states = call('HMGET', STATES, unpack(ids))
local before, earliest = head(), nil
local statuses, gone, fresh, members = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and holds(s, ARGV[2 + 2 * i]) and kind(s)
  if k == 'L' or k == 'F' then
    statuses[i] = DONE
    local at = due(s)
    if not earliest or at < earliest then earliest = at end
    local n = #fresh
    fresh[n + 1], fresh[n + 2] = id, 'B' .. sub(s, 2)
    members[n + 1], members[n + 2] = decimal(at), id
    gone[#gone + 1] = id
  elseif k == 'B' then
    statuses[i] = DONE -- it was this call
  else
    statuses[i] = LEASE_LOST
  end
end

allow_growth()
many('ZREM', LEASED, gone)
store(STATES, fresh)
many('ZADD', SCHEDULED, members)
hint(before, earliest)
return { sec, usec, table.concat(statuses), '', '' }
