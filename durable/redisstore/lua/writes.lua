-- Precedes scripts that write records or states, or leases if the server is out of memory.
-- KEYS: those of partition.lua. ARGV: those of the script.

-- The server stores a small hash with short values as a list and searches it linearly, which takes
-- some microseconds for each id. One long value turns the list into a hash table for good. The
-- field of that value is the empty id, which no message has.
local FILLER = '.................................................................'

-- filled returns fields and values of the records or the states with the filler.
local function filled(values)
  values[#values + 1] = ''
  values[#values + 1] = FILLER
  return values
end

-- store writes fields and values of the records or the states.
local function store(key, values)
  if #values > 0 then call('HSET', key, unpack(filled(values))) end
end

-- allow_growth permits the writes after it although the server is out of memory. The server rejects
-- a script whose first write may need memory, so allow_growth first deletes a field that does not
-- exist. Consumers can then empty the queue.
local function allow_growth() call('HDEL', COUNTERS, '') end

-- store_anyway is store for the first write of a script that must succeed although the server is
-- out of memory.
local function store_anyway(key, values)
  if #values == 0 then return end
  local result = redis.pcall('HSET', key, unpack(filled(values)))
  if type(result) == 'table' then -- an error
    allow_growth()
    call('HSET', key, unpack(values))
  end
end
