-- Counts what a partition holds and has seen.
-- KEYS: those of partition.lua.
-- ARGV: none.
-- Result: now, scheduled, due, leased, dead, next due time or '0', then the counters enqueued, acked, retried, buried, cancelled, crashed,
--         trimmed, expired, dead_bytes.

local first = head()
local result = {
  decimal(now), decimal(call('ZCARD', SCHEDULED)), decimal(call('ZCOUNT', SCHEDULED, '-inf', decimal(now))),
  decimal(call('ZCARD', LEASED)), decimal(call('ZCARD', DEAD)), first and decimal(first) or '0',
}
local counters = call('HMGET', COUNTERS, 'enqueued', 'acked', 'retried', 'buried', 'cancelled', 'crashed', 'trimmed', 'expired',
  'dead_bytes')
for i = 1, 9 do result[6 + i] = counters[i] or '0' end
return result
