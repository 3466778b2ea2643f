-- Precedes scripts that write records or states, or leases if the server is out of memory.
-- KEYS: as in partition.lua. ARGV: as in the script.

-- store writes fields and values of the records or the states.
local function store(key, values) call_list('HSET', key, values) end

-- allow_growth permits the writes after it although the server is out of memory. The server rejects
-- a script whose first write may need memory, so allow_growth first deletes a field that does not
-- exist. Consumers can then empty the queue.
local function allow_growth() call('HDEL', COUNTERS, '') end

-- store_anyway is store for the first write of a script that must succeed although the server is
-- out of memory.
local function store_anyway(key, values)
  if #values == 0 then return end
  local result = redis.pcall('HSET', key, unpack(values))
  if type(result) == 'table' then -- an error
    allow_growth()
    call('HSET', key, unpack(values))
  end
end
