-- Precedes scripts that read or change the rare data of states.
-- KEYS: those of partition.lua. ARGV: those of the script.

local NEVER7 = '\16\0\0\0\0\0\0' -- pack7(NEVER)

-- rare returns rare data with its length.
local function rare(planned, postponements, series)
  if planned == ZERO7 and postponements == ZERO4 and series == '' then return ZERO2 end
  local n = 11 + #series
  return char(floor(n / 256), n % 256) .. planned .. postponements .. series
end

-- rare_parts returns the arguments of rare for a state.
local function rare_parts(s)
  local n = rare_bytes(s)
  if n == 0 then return ZERO7, ZERO4, '' end
  return sub(s, 33, 39), sub(s, 40, 43), sub(s, 44, 32 + n)
end

-- settled returns the rare data of a state with its length, and without postponements.
local function settled(s)
  local planned, _, series = rare_parts(s)
  return rare(planned, ZERO4, series)
end

-- replanned returns a state with another planned time (7 bytes) and another series.
local function replanned(s, planned, series)
  local _, postponements = rare_parts(s)
  return sub(s, 1, 30) .. rare(planned, postponements, series) .. sub(s, 33 + rare_bytes(s))
end

local function is_recurring(s) return #s > 43 and rare_bytes(s) > 11 end

-- is_marked reports whether the next end of its lease removes a firing message: see driver.Backend.
local function is_marked(s) return #s >= 43 and rare_bytes(s) > 0 and sub(s, 33, 39) == NEVER7 end
