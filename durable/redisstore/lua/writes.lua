-- Read before scripts that write records or states.
-- KEYS: those of partition.lua. ARGV: those of the script.

-- A small hash with short values is a list for the server, which it searches from the front: some microseconds for each id. One long
-- value makes a table of it for good. The field of that value is the empty id, which no message has.
local FILLER = '.................................................................'

-- store writes fields and values of the records or the states.
local function store(key, values)
  if #values == 0 then return end
  values[#values + 1] = ''
  values[#values + 1] = FILLER
  call('HSET', key, unpack(values))
end

-- allow_growth lets the writes that follow through where the server is out of memory. It refuses a script whose first write
-- may need memory, so the first one here removes a member that no set has. What is queued can then be worked off.
local function allow_growth() call('ZREM', LEASED, '') end
