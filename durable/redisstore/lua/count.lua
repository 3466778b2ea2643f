-- Counts the messages of a partition, and reads its counters.
-- KEYS: as in partition.lua.
-- ARGV: none.
-- Result: now, scheduled, due, leased, dead, messages that are set aside, next due time or '0';
--         then the counters enqueued, acked, retried, buried, cancelled, crashed, trimmed, lost,
--         expired, dead_bytes; '1' if the partition is paused; and the lost keys: see create.lua.

local aside, all = call('ZCOUNT', SCHEDULED, '-inf', '(0'), cardinality(SCHEDULED)
local leased, dead = cardinality(LEASED), cardinality(DEAD)
local first = head()
local result = {
  decimal(now), decimal(all - aside), decimal(call('ZCOUNT', SCHEDULED, 0, decimal(now))),
  decimal(leased), decimal(dead), decimal(aside), first and decimal(first) or '0',
}
local counters = call('HMGET', COUNTERS,
  'enqueued', 'acked', 'retried', 'buried', 'cancelled', 'crashed', 'trimmed', 'lost', 'expired',
  'dead_bytes', 'paused', 'damaged')
for i = 1, 10 do result[7 + i] = counters[i] or '0' end

-- Each record is in one set, so the number of members beyond the number of records is the number of
-- members without a record.
local records = call('HLEN', RECORDS) - call('HEXISTS', RECORDS, '') -- without the filler
local missing = math.max(0, all + leased + dead - records)
result[15] = decimal(tonumber(result[15]) + missing)
result[18], result[19] = counters[11] and '1' or '0', counters[12] or ''
return result
