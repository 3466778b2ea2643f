-- Adds up the sizes of the bodies of some dead letters, or sets the counter of that sum if the set
-- of dead letters has not changed since.
-- KEYS: those of partition.lua.
-- ARGV: 1 rank of the first one, 2 number, 3 '' or the sum to set, 4 the third result of the call
--       that began the sum; ignored if 3 is ''.
-- Result: the sum, the number of dead letters, a value that changes with the set of dead letters,
--         the counter, '1' if it was set.

local counters = call('HMGET', COUNTERS, 'dead_bytes', 'buried', 'trimmed')
local before = tonumber(counters[1] or 0)
local at = table.concat({ cardinality(DEAD), decimal(before), counters[2] or '0', counters[3] or '0' }, ' ')
if ARGV[3] ~= '' then
  if at ~= ARGV[4] then return { 0, 0, at, decimal(before), '0' } end
  call('HSET', COUNTERS, 'dead_bytes', ARGV[3])
  return { 0, 0, at, ARGV[3], '1' }
end
local ids = call('ZRANGE', DEAD, ARGV[1], ARGV[1] + ARGV[2] - 1)
if ids[#ids] == '' then ids[#ids] = nil end
return { decimal(body_bytes(ids, 1, 1)), #ids, at, decimal(before), '0' }
