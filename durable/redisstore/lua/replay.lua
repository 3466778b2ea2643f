-- Dead letters are scheduled again, with no attempts and no crashes.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints; then for each message: id, time (see instant).
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM.

local ids = column(3, 2)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone, rewritten = {}, {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  local k = s and kind(s)
  if is_dead(k) and call('HEXISTS', RECORDS, id) == 1 then
    statuses[i] = DONE
    local at = instant(ARGV[2 + 2 * i])
    schedule(id, 'P' .. sub(s, 2, 8) .. pack7(at) .. ZERO4 .. ZERO4 .. ZERO7 .. sub(s, 31), at)
    gone[#gone + 1] = id
  elseif k == 'P' then
    statuses[i] = DONE -- a call before this one has done it
    rewritten[#rewritten + 1] = id -- WAIT waits for the last write of its connection: see put.lua
    rewritten[#rewritten + 1] = s
  else
    statuses[i] = NOT_FOUND
  end
end

schedule_all(DEAD, gone)
subtract_dead(gone)
many('HSET', STATES, rewritten)
return { sec, usec, table.concat(statuses), '', '' }
