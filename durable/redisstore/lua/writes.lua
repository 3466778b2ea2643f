-- Read before scripts that write records or states, or leases where the server is out of memory.
-- KEYS: those of partition.lua. ARGV: those of the script.

-- A small hash with short values is a list for the server, which it searches from the front: some microseconds for each id. One long
-- value makes a table of it for good. The field of that value is the empty id, which no message has.
local FILLER = '.................................................................'

-- filled are fields and values of the records or the states with the filler.
local function filled(values)
  values[#values + 1] = ''
  values[#values + 1] = FILLER
  return values
end

-- store writes fields and values of the records or the states.
local function store(key, values)
  if #values > 0 then call('HSET', key, unpack(filled(values))) end
end

-- allow_growth lets the writes that follow through where the server is out of memory. It refuses a script whose first write
-- may need memory, so the first one here removes a field that no hash of counters has. What is queued can then be worked off.
local function allow_growth() call('HDEL', COUNTERS, '') end

-- store_anyway is store as the first write of a script that is to go on where the server is out of memory.
local function store_anyway(key, values)
  if #values == 0 then return end
  local result = redis.pcall('HSET', key, unpack(filled(values)))
  if type(result) == 'table' then -- an error
    allow_growth()
    call('HSET', key, unpack(values))
  end
end
