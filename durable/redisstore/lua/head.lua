-- Precedes scripts that need the earliest due time.
-- KEYS: as in partition.lua. ARGV: for hint 1 PUBLISH or SPUBLISH, 2 channel of hints; and the
--       arguments of the script.

-- head returns the earliest due time, nil if nothing is scheduled, and whether messages are set
-- aside: see claim.lua.
local function head()
  local first = call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')
  local at = first[1] and first[1] ~= '' and tonumber(first[2])
  if not at or at >= 0 then return at or nil, false end
  first = call('ZRANGEBYSCORE', SCHEDULED, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return first[1] and first[1] ~= '' and tonumber(first[2]) or nil, true
end

-- hint sends a hint if the earliest due time has become earlier. If the server rejects the command,
-- only the hint is lost.
local function hint(before, after)
  if after and (not before or after < before) then redis.pcall(ARGV[1], ARGV[2], decimal(after)) end
end
