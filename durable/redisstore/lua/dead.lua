-- Precedes scripts that change the set of dead letters: the sum of the sizes of their bodies, and
-- the limits on their number, bytes and age.
-- KEYS: as in partition.lua. ARGV: as in the script.

-- has_died_at reports whether a state belongs to a dead letter that died at a time, '' for any.
local function has_died_at(state, died) return died == '' or sub(state, 24, 30) == died end

-- body_bytes returns the sum of the sizes of the bodies of messages: every step-th value from the
-- first on.
local function body_bytes(values, first, step)
  local bytes = 0
  for i = first, #values, step do bytes = bytes + math.max(0, call('HSTRLEN', RECORDS, values[i]) - 19) end
  return bytes
end

-- add_dead adds scores and ids to the dead letters.
local function add_dead(members)
  call_list('ZADD', DEAD, members)
  count('dead_bytes', body_bytes(members, 2, 2))
end

-- subtract_dead subtracts the sizes of the bodies of messages that stop being dead letters. Their
-- records must still exist.
local function subtract_dead(ids)
  local bytes = body_bytes(ids, 1, 1)
  if bytes > 0 then call('HINCRBY', COUNTERS, 'dead_bytes', -bytes) end
end

-- trim_dead removes the oldest dead letters beyond limit, those older than age in milliseconds, and
-- the oldest while the bodies have more than max_bytes bytes. The last condition never removes the
-- newest dead letter. A call removes up to 256.
local function trim_dead(limit, age, max_bytes)
  local n = cardinality(DEAD)
  if n == 0 then return end
  local excess = math.max(n - limit, call('ZCOUNT', DEAD, '-inf', decimal(now - age)))
  local bytes = tonumber(call('HGET', COUNTERS, 'dead_bytes') or 0)
  if excess <= 0 and (bytes <= max_bytes or n == 1) then return end
  local gone = {}
  for i, id in ipairs(call('ZRANGE', DEAD, 0, math.min(256, n) - 1)) do
    if i > excess and (bytes <= max_bytes or i == n) then break end
    gone[i] = id
    bytes = bytes - body_bytes(gone, i, 1)
  end
  call('ZREM', DEAD, unpack(gone))
  subtract_dead(gone)
  count('trimmed', #gone)

  -- If a key was lost, a member may be a message that was put or rescheduled since. The record of
  -- such a message stays.
  local scheduled, leased = call('ZMSCORE', SCHEDULED, unpack(gone)), call('ZMSCORE', LEASED, unpack(gone))
  local removed = {}
  for i, id in ipairs(gone) do
    if not (scheduled[i] or leased[i]) then removed[#removed + 1] = id end
  end
  call_list('HDEL', RECORDS, removed)
  call_list('HDEL', STATES, removed)
end
