-- Adds up the sizes of the bodies of some dead letters. After the last one, the script compares the
-- sum with its counter, and corrects the counter if ARGV says so.
-- KEYS: as in partition.lua.
-- ARGV: 1 rank of the first dead letter, 2 number, 3 sum for the earlier ones, 4 the third result
--       of the previous call, ignored for rank 0, 5 '1' to correct the counter.
-- Result: the rank for the next call, the sum, a value that changes with the set of dead letters, 1
--         if the counter is wrong, 1 if it was corrected. The rank is -1 after the last dead
--         letter, and 0 if the set has changed since the previous call.

local counters = call('HMGET', COUNTERS, 'dead_bytes', 'buried', 'trimmed')
local before = tonumber(counters[1] or 0)
local at = table.concat({ cardinality(DEAD), decimal(before), counters[2] or '0', counters[3] or '0' }, ' ')
local rank = tonumber(ARGV[1])
if rank > 0 and at ~= ARGV[4] then return { 0, 0, at, 0, 0 } end
local ids = call('ZRANGE', DEAD, rank, rank + ARGV[2] - 1)
if ids[#ids] == '' then ids[#ids] = nil end
local sum = ARGV[3] + body_bytes(ids, 1, 1)
if #ids == tonumber(ARGV[2]) then return { rank + #ids, decimal(sum), at, 0, 0 } end
if sum == before then return { -1, 0, at, 0, 0 } end
if ARGV[5] == '1' then call('HSET', COUNTERS, 'dead_bytes', decimal(sum)) end
return { -1, 0, at, 1, tonumber(ARGV[5]) }
