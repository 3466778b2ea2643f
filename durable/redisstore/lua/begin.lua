-- Begins leased messages that are due.
-- KEYS: as in partition.lua.
-- ARGV: 1 visibility in ms, or 0 to keep the ends of leases; 2 how many microseconds before its due
--       time a message may begin; 3 this process; then for each message: id, token (7 bytes).
-- Result: sec, usec, statuses, due times (7 bytes each), ends of leases (7 bytes each) or '' if
--         they did not change.
-- Runs under OOM.

local ids = column(4, 2)
local states = call('HMGET', STATES, unpack(ids))
local latest_due = (tonumber(sec) * 1000000 + tonumber(usec) + tonumber(ARGV[2])) / 1000
local visibility = tonumber(ARGV[1])
local paused = call('HEXISTS', COUNTERS, 'paused') == 1
local length = pack7(#ARGV[3])
local packed, score
if visibility > 0 then
  local lease = lease_end(now, visibility)
  packed, score = pack7(lease), decimal(lease)
end
local statuses, dues, ends, fresh, leases = {}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = valid_state(s) and has_token(s, ARGV[3 + 2 * i]) and kind(s)
  dues[i] = ZERO7
  ends[i] = packed and ZERO7
  if k ~= 'L' and k ~= 'F' then
    statuses[i] = LEASE_LOST
  else
    dues[i] = sub(s, 9, 15)
    if k == 'L' and paused then
      statuses[i] = PAUSED
    elseif k == 'L' and due(s) > latest_due then
      statuses[i] = EARLY
    else
      statuses[i] = DONE
      local n = #fresh
      fresh[n + 1], fresh[n + 2] = id, k == 'F' and s or 'F' .. sub(s, 2, 23) .. length .. sub(s, 31) .. ARGV[3]
      if packed then
        ends[i] = packed
        leases[#leases + 1], leases[#leases + 2] = score, id
      end
    end
  end
end

store_anyway(STATES, fresh)
if packed then call_list('ZADD', LEASED, leases) end
return { sec, usec, table.concat(statuses), table.concat(dues), table.concat(ends) }
