-- Precedes scripts with times among their arguments.
-- KEYS: as in partition.lua. ARGV: as in the script.

-- instant decodes a time: a positive number is absolute, any other number a negated delay.
local function instant(argument)
  local n = tonumber(argument)
  if n > 0 then return math.min(NEVER, math.max(n, now)) end
  if n == 0 then return now end
  return math.min(NEVER, now_ceil - n)
end

-- lease_end returns the end of a lease of ms milliseconds that begins now, or at instant at if that
-- is later.
local function lease_end(at, ms) return math.min(NEVER, math.max(now_ceil, at) + ms) end
