-- Reads one message.
-- KEYS: those of partition.lua.
-- ARGV: 1 id.
-- Result: record, state, due time, end of lease, each '' where there is none.

local function score(key)
  local n = call('ZSCORE', key, ARGV[1])
  return n and decimal(tonumber(n)) or ''
end

return {
  call('HGET', RECORDS, ARGV[1]) or '', call('HGET', STATES, ARGV[1]) or '',
  score(SCHEDULED), score(LEASED),
}
