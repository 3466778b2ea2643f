-- Removes firing messages that were handled or have expired.
-- KEYS: as in partition.lua.
-- ARGV: 1 the counter, acked or expired; then for each message: id, token (7 bytes).
-- Result: sec, usec, statuses, '', ''.
-- Runs under OOM: it removes something first.

local ids = column(2, 2)
local states = call('HMGET', STATES, unpack(ids))
local statuses, gone = {}, {}
for i, id in ipairs(ids) do
  local s = states[i]
  if s and kind(s) == 'F' and has_token(s, ARGV[1 + 2 * i]) then
    statuses[i] = DONE
    gone[#gone + 1] = id
  elseif call('HEXISTS', RECORDS, id) == 1 then
    statuses[i] = LEASE_LOST
  else
    statuses[i] = NOT_FOUND
  end
end

call_list('HDEL', RECORDS, gone)
call_list('HDEL', STATES, gone)
call_list('ZREM', LEASED, gone)
count(ARGV[1], #gone)
return { sec, usec, table.concat(statuses), '', '' }
