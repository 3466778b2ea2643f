-- Precedes scripts that change the rare data of states, or remove messages when their leases end.
-- KEYS: as in partition.lua. ARGV: as in the script.

-- rare returns rare data with its length.
local function rare(planned, postponements, series)
  if planned == ZERO7 and postponements == ZERO4 and series == '' then return ZERO2 end
  local n = 11 + #series
  return char(floor(n / 256), n % 256) .. planned .. postponements .. series
end

-- replanned returns a state with another planned time (7 bytes) and another series.
local function replanned(s, planned, series)
  local _, postponements = rare_parts(s)
  return sub(s, 1, 30) .. rare(planned, postponements, series) .. sub(s, 33 + rare_bytes(s))
end

-- remove removes messages that are in no set any longer, and counts them.
local function remove(counter, ids)
  call_list('HDEL', RECORDS, ids)
  call_list('HDEL', STATES, ids)
  count(counter, #ids)
end
