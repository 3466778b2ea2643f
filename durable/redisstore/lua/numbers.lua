-- Precedes scripts that write or read numbers of records and states.
-- KEYS: as in partition.lua. ARGV: as in the script.

local byte, char = string.byte, string.char
local ZERO2, ZERO4, ZERO7, ZERO8 = '\0\0', '\0\0\0\0', '\0\0\0\0\0\0\0', '\0\0\0\0\0\0\0\0'
local ZERO15 = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- Plain arithmetic is faster here than math.floor.
local function pack4(n)
  local d = n % 256; n = (n - d) / 256
  local c = n % 256; n = (n - c) / 256
  local b = n % 256
  return char((n - b) / 256, b, c, d)
end

local function pack7(n)
  local g = n % 256; n = (n - g) / 256
  local f = n % 256; n = (n - f) / 256
  local e = n % 256; n = (n - e) / 256
  local d = n % 256; n = (n - d) / 256
  local c = n % 256; n = (n - c) / 256
  local b = n % 256
  return char((n - b) / 256, b, c, d, e, f, g)
end

local function unpack4(s, i)
  local a, b, c, d = byte(s, i, i + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function unpack7(s, i)
  local a, b, c, d, e, f, g = byte(s, i, i + 6)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

local function due(s) return unpack7(s, 9) end

-- rare_bytes returns the length of the rare data of a state.
local function rare_bytes(s) return byte(s, 31) * 256 + byte(s, 32) end

-- process returns the process that has begun a firing message.
local function process(s) return sub(s, #s - unpack7(s, 24) + 1) end

-- rare_parts returns the planned time (7 bytes), the postponements (4 bytes) and the series of a
-- state. The message is recurring if it has a series, and a firing one is marked if the time is
-- NEVER7.
local function rare_parts(s)
  if #s < 43 or rare_bytes(s) == 0 then return ZERO7, ZERO4, '' end
  return sub(s, 33, 39), sub(s, 40, 43), sub(s, 44, 32 + rare_bytes(s))
end
