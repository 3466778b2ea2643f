-- Precedes each script that schedules messages again.
-- KEYS: as in partition.lua. ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, and the
--       arguments of the script.

local before, earliest = head(), nil
local fresh, members = {}, {}

-- schedule records the new state of a message and the instant at which it is due.
local function schedule(id, state, at)
  if not earliest or at < earliest then earliest = at end
  fresh[#fresh + 1], fresh[#fresh + 2] = id, state
  members[#members + 1], members[#members + 2] = decimal(at), id
end

-- schedule_all stores the recorded states and schedules their messages. gone are ids to remove from
-- set.
local function schedule_all(set, gone)
  allow_growth()
  call_list('ZREM', set, gone)
  store(STATES, fresh)
  call_list('ZADD', SCHEDULED, members)
  hint(before, earliest)
end
