-- Read before scripts that are given times.
-- KEYS: those of partition.lua. ARGV: those of the script.

-- instant reads a time: positive it is absolute, and else the time since now with its sign turned.
local function instant(argument)
  local n = tonumber(argument)
  if n > 0 then return math.min(NEVER, math.max(n, now)) end
  if n == 0 then return now end
  return math.min(NEVER, soon - n)
end

-- lease_end is when a lease of ms milliseconds ends that runs from now, or from instant at if that is later.
local function lease_end(at, ms) return math.min(NEVER, math.max(soon, at) + ms) end
