-- Messages that have not begun are due at another time.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, time (see instant).
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM. The new time stands in the state too, where an audit finds it if the set is lost.

local ids = column(3, 2)
local states = call('HMGET', STATES, unpack(ids))
local before, earliest = head(), nil
local statuses, gone, fresh, members = {}, {}, {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and kind(s)
  if k == 'F' then
    statuses[i] = FIRING
  elseif is_dead(k) or call('HEXISTS', RECORDS, id) == 0 then
    statuses[i] = NOT_FOUND
  else
    statuses[i] = DONE
    local at = instant(ARGV[2 + 2 * i])
    if not earliest or at < earliest then earliest = at end
    local n = #fresh
    fresh[n + 1], fresh[n + 2] = id, moved(s, 'S', at)
    members[n + 1], members[n + 2] = decimal(at), id
    if k == 'L' then gone[#gone + 1] = id end
  end
end

allow_growth()
many('ZREM', LEASED, gone)
store(STATES, fresh)
many('ZADD', SCHEDULED, members)
hint(before, earliest)
return { sec, usec, table.concat(statuses), '', '' }
