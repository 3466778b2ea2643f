-- Removes messages that have not begun. Marks firing ones, or ends their series: see
-- driver.Backend.
-- KEYS: as in partition.lua.
-- ARGV: 1 to 6 as in call.lua; then for each message: id, the time (7 bytes) at which it was
--       enqueued or '' for any, '1' to mark a firing message and to send a hint.
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM: it removes something first.

local ids, incarnations = column(7, 3), column(8, 3)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone, fresh = {}, {}, {}
for i, id in ipairs(ids) do
  local s, interrupt = states[i], ARGV[6 + 3 * i] == '1'
  local k = s and kind(s)
  if incarnations[i] ~= '' and sub(call('HGET', RECORDS, id) or '', 2, 8) ~= incarnations[i] then
    statuses[i] = NOT_FOUND
  elseif k == 'F' then
    local a, b = string.byte(s, 31, 32)
    local length = b and a * 256 + b -- of the rare data; nil if the state is damaged
    statuses[i] = interrupt and length and INTERRUPTED or FIRING
    if length and (interrupt or length > 11) then
      local n = #fresh
      fresh[n + 1], fresh[n + 2] = id, sub(s, 1, 32) .. NEVER7 .. sub(s, 40)
      if not interrupt then
        fresh[n + 2] = sub(s, 1, 30) .. '\0\11' .. sub(s, 33, 43) .. sub(s, 33 + length)
      elseif length == 0 then
        fresh[n + 2] = sub(s, 1, 30) .. '\0\11' .. NEVER7 .. '\0\0\0\0' .. sub(s, 33)
      end
    end
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
store(STATES, fresh)
count('cancelled', #gone)
remember(statuses, {})
for i, id in ipairs(ids) do
  if sub(statuses, i, i) == INTERRUPTED then redis.pcall(ARGV[1], ARGV[2], '0 ' .. id) end
end
return { sec, usec, statuses, '', '' }
