-- Precedes scripts that may read damaged or missing values.
-- KEYS: as in partition.lua. ARGV: as in the script.

-- VERSION is the newest version of records that these scripts can read.
local VERSION = 1

-- valid_record reports whether a record is undamaged and not of a newer version. Arithmetic on an
-- unreadable record would end the script, and no consumer could work on the partition.
local function valid_record(r) return r and #r >= 19 and sub(r, 1, 1) == '\1' end

-- valid_state returns a state if it is complete.
local function valid_state(s) return s and #s >= 32 and #s >= 32 + rare_bytes(s) and s end

-- moved returns state s, or a new one if s is false, with another kind and another due time.
local function moved(s, k, at)
  if not s then return k .. ZERO7 .. pack7(at) .. ZERO15 .. ZERO2 end
  return k .. sub(s, 2, 8) .. pack7(at) .. sub(s, 16)
end
