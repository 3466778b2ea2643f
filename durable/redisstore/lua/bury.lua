-- Makes firing messages dead letters and counts one more attempt of each, or removes marked ones.
-- KEYS: as in partition.lua.
-- ARGV: 1 number of dead letters to keep, 2 their maximum age in ms, 3 the maximum bytes of their
--       bodies; then for each message: id, token (7 bytes), reason.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(4, 3)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone, removed, fresh, members = {}, {}, {}, {}, {}
local died, score = pack7(now), decimal(now)
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and has_token(s, ARGV[2 + 3 * i]) and kind(s)
  if k == 'F' then
    statuses[i], gone[#gone + 1] = DONE, id
    local planned, _, series = rare_parts(s)
    if planned == NEVER7 then
      removed[#removed + 1] = id
    else
      local n = #fresh
      fresh[n + 1] = id
      fresh[n + 2] = 'D' .. sub(s, 2, 15) .. pack4(unpack4(s, 16) + 1) .. sub(s, 20, 23) .. died .. rare(planned, ZERO4, series) .. ARGV[3 + 3 * i]
      members[#members + 1], members[#members + 2] = score, id
    end
  elseif k == 'D' then
    statuses[i] = DONE -- by a copy of this call
  else
    statuses[i] = LEASE_LOST
  end
end

allow_growth()
call_list('ZREM', LEASED, gone)
store(STATES, fresh)
add_dead(members)
count('buried', #fresh / 2)
remove('cancelled', removed)
trim_dead(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
return { sec, usec, table.concat(statuses), '', '' }
