-- Removes messages that have not begun.
-- KEYS: those of partition.lua.
-- ARGV: 1 to 6 as in call.lua; then for each message: id, the time (7 bytes) at which it was
--       enqueued or '' for any.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM: it removes first.

local ids, incarnations = column(7, 2), column(8, 2)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  local k = states[i] and kind(states[i])
  if incarnations[i] ~= '' and sub(call('HGET', RECORDS, id) or '', 2, 8) ~= incarnations[i] then
    statuses[i] = NOT_FOUND
  elseif k == 'F' then
    statuses[i] = FIRING
  elseif not is_dead(k) and call('HDEL', RECORDS, id) == 1 then
    statuses[i] = DONE
    gone[#gone + 1] = id
  else
    statuses[i] = NOT_FOUND
  end
end

statuses = table.concat(statuses)
allow_growth()
call_list('HDEL', STATES, gone)
call_list('ZREM', SCHEDULED, gone)
call_list('ZREM', LEASED, gone)
count('cancelled', #gone)
remember(statuses, {})
return { sec, usec, statuses, '', '' }
