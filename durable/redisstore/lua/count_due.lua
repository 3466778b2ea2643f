-- Counts the scheduled messages that are due within each of several durations from now.
-- KEYS: as in partition.lua.
-- ARGV: milliseconds from now, not negative.
-- Result: for each argument the number of messages.

local result = {}
for i = 1, #ARGV do
  local bound = math.min(NEVER, now + tonumber(ARGV[i]))
  result[i] = decimal(call('ZCOUNT', SCHEDULED, 0, decimal(bound)))
end
return result
