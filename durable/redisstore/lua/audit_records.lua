-- Looks for records that are in no set, and puts them back. Dead letters whose state was lost count
-- as such records, because no call can replay or purge them.
-- KEYS: as in partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, 3 cursor of HSCAN, or '' for the counter
--       'mending', which is removed at the end; 4 its COUNT, 5 '1' to repair, 6 new lease in ms for
--       messages in flight.
-- Result: next cursor, records, orphans, unreadable ones, repaired, bytes that were read.
-- Runs under OOM.

local cursor = ARGV[3] ~= '' and ARGV[3] or call('HGET', COUNTERS, 'mending')
if not cursor then return { '0', 0, 0, 0, 0, 0 } end -- another consumer has made the last step
local scan = call('HSCAN', RECORDS, cursor, 'COUNT', ARGV[4])
local found, repair = scan[2], ARGV[5] == '1'
local before = head()
local records, orphans, unreadable, repaired, bytes = 0, 0, 0, 0, 0

-- If the states and the leases were lost, a message without a state may be in flight.
local damaged = call('HGET', COUNTERS, 'damaged') or ''
local unknown = string.find(damaged, STATES, 1, true) and string.find(damaged, LEASED, 1, true)

-- put_back schedules an orphan, puts it back among the dead letters if its state belongs to a dead
-- letter, or gives it a new lease if it is in flight, because its delivery may continue. died is
-- its time of death if only its state was lost. An orphan that cannot be read stays where it is,
-- because its due time is unknown.
local function put_back(id, record, s, died)
  s = valid_state(s)
  if not valid_record(record) then return end
  allow_growth()
  if died then
    s = sub(moved(false, 'X', unpack7(record, 9)), 1, 23) .. pack7(tonumber(died)) .. ZERO2
    store(STATES, { id, s })
  end
  local k = s and kind(s)
  if is_dead(k) then
    call('ZADD', DEAD, decimal(unpack7(s, 24)), id)
  elseif k == 'L' or k == 'F' then
    call('ZADD', LEASED, decimal(lease_end(due(s), tonumber(ARGV[6]))), id)
  else
    local at = unpack7(s or record, 9)
    if not s and unknown then at = math.max(at, now + tonumber(ARGV[6])) end
    if s then store(STATES, { id, 'S' .. sub(s, 2) }) end
    call('ZADD', SCHEDULED, decimal(at), id)
  end
  repaired = repaired + 1
end

-- HSCAN returns a small hash as a whole regardless of COUNT, so the loop takes 128 records at a
-- time.
for first = 1, #found, 256 do
  local ids, values = {}, {}
  for i = first, math.min(first + 255, #found), 2 do
    if found[i] ~= '' then
      ids[#ids + 1], values[#values + 1] = found[i], found[i + 1]
    end
  end
  if #ids == 0 then break end -- only the filler was there
  local scheduled, leased = call('ZMSCORE', SCHEDULED, unpack(ids)), call('ZMSCORE', LEASED, unpack(ids))
  local dead, states = call('ZMSCORE', DEAD, unpack(ids)), call('HMGET', STATES, unpack(ids))
  for i, id in ipairs(ids) do
    records, bytes = records + 1, bytes + #values[i]
    if not valid_record(values[i]) then unreadable = unreadable + 1 end
    if not (scheduled[i] or leased[i] or dead[i] and states[i]) then
      orphans = orphans + 1
      if repair then put_back(id, values[i], states[i], dead[i]) end
    end
  end
end

if ARGV[3] == '' then
  allow_growth()
  if scan[1] == '0' then call('HDEL', COUNTERS, 'mending') else call('HSET', COUNTERS, 'mending', scan[1]) end
end
hint(before, head())
return { scan[1], records, orphans, unreadable, repaired, bytes }
