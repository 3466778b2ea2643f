-- Precedes each script that schedules messages again.
-- KEYS: those of partition.lua. ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, and those of the
--       script.

local before, earliest = head(), nil
local fresh, members = {}, {}

-- schedule notes that a message has a new state and is due at an instant.
local function schedule(id, state, at)
  if not earliest or at < earliest then earliest = at end
  local n = #fresh
  fresh[n + 1], fresh[n + 2] = id, state
  members[n + 1], members[n + 2] = decimal(at), id
end

-- schedule_all moves the noted messages out of a set. gone are their ids.
local function schedule_all(set, gone)
  allow_growth()
  call_list('ZREM', set, gone)
  store(STATES, fresh)
  call_list('ZADD', SCHEDULED, members)
  hint(before, earliest)
end
