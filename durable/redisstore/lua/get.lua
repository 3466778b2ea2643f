-- Reads one message.
-- KEYS: those of partition.lua.
-- ARGV: 1 id.
-- Result: record, state, due time, end of lease, each '' if there is none.

-- score returns the time of the message in a set, or ''. The score of a message that is set aside
-- is negated: see claim.lua.
local function score(key)
  local n = call('ZSCORE', key, ARGV[1])
  return n and decimal(math.abs(tonumber(n))) or ''
end

return {
  call('HGET', RECORDS, ARGV[1]) or '', call('HGET', STATES, ARGV[1]) or '',
  score(SCHEDULED), score(LEASED),
}
