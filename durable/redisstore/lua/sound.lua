-- Read before scripts that meet what may have been damaged or lost.
-- KEYS: those of partition.lua. ARGV: those of the script.

-- VERSION is the newest version of a record that these scripts can read.
local VERSION = 1

-- sound_record is whether a record can be read. One of a newer version cannot, nor a damaged one: arithmetic on it would end the
-- script, and with it all work on the partition.
local function sound_record(r) return r and #r >= 19 and sub(r, 1, 1) == '\1' end

-- sound_state is a state that is whole.
local function sound_state(s) return s and #s >= 30 and s end

-- moved is state s (false: there is none yet) as another kind with another due time.
local function moved(s, k, at)
  if not s then return k .. ZERO7 .. pack7(at) .. ZERO4 .. ZERO4 .. ZERO7 end
  return k .. sub(s, 2, 8) .. pack7(at) .. sub(s, 16)
end
