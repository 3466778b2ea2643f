-- Reads one message.
-- KEYS: as in partition.lua.
-- ARGV: 1 id.
-- Result: record, state, time in the set of its state; '', '' and '-1' if they are missing.

local record, s = call('HGET', RECORDS, ARGV[1]) or '', call('HGET', STATES, ARGV[1]) or ''
local k = kind(s)
local at = call('ZSCORE', (k == 'L' or k == 'F') and LEASED or SCHEDULED, ARGV[1])
return { record, s, at and decimal(math.abs(tonumber(at))) or '-1' } -- negated if set aside: see claim.lua
