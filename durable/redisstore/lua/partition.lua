-- Read before each script of a partition: its keys, and the form of what stands in them.
-- KEYS: 1 records, 2 states, 3 scheduled, 4 leased, 5 dead, 6 counters, 7 producers. ARGV: those of the script.
--
-- record: version (1 byte), enqueued (7 bytes), first due time (7), largest number of attempts (4), body
-- state:  kind (1), token (7), due (7), attempts (4), crashes (4), time of death (7), reason
--
-- Numbers are big-endian. 7 bytes hold what a double does. A kind is one of
--   S scheduled   R scheduled by Retry   B scheduled by Release   P scheduled by Replay   L leased   F firing   X dead   D dead by Bury
-- R, B, P and D say which call has brought the message there: whoever repeats that call is told the same again.
-- A message without a state has never been claimed or moved; its due time is the score in the set.

local RECORDS, STATES, SCHEDULED, LEASED, DEAD, COUNTERS, PRODUCERS = unpack(KEYS)
local byte, char, sub = string.byte, string.char, string.sub

local DONE, DUPLICATE, FIRING, NOT_FOUND, LEASE_LOST, EARLY = '1', '2', '3', '4', '5', '6'
local ZERO4, ZERO7, ZERO15 = string.rep('\0', 4), string.rep('\0', 7), string.rep('\0', 15)

-- Arithmetic alone is faster here than math.floor.
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

-- Parts of a state.
local function kind(s) return sub(s, 1, 1) end
local function holds(s, token) return sub(s, 2, 8) == token end
local function is_dead(k) return k == 'X' or k == 'D' end
local function due(s) return unpack7(s, 9) end

-- A record or a state that somebody else has damaged is none: arithmetic on it would end the script, and with it all work on the partition.
local function sound_record(r) return r and #r >= 19 and sub(r, 1, 1) == '\1' end
local function sound_state(s) return s and #s >= 30 and s end

-- moved is state s (false: there is none yet) as another kind with another due time.
local function moved(s, k, at)
  if not s then return k .. ZERO7 .. pack7(at) .. ZERO4 .. ZERO4 .. ZERO7 end
  return k .. sub(s, 2, 8) .. pack7(at) .. sub(s, 16)
end

-- instant reads a time: positive it is absolute, and else the time since now with its sign turned.
local function instant(argument)
  local n = tonumber(argument)
  if n > 0 then return math.min(NEVER, math.max(n, now)) end
  if n == 0 then return now end
  return math.min(NEVER, soon - n)
end

-- lease_end is when a lease of ms milliseconds ends that runs from now, or from instant at if that is later.
local function lease_end(at, ms) return math.min(NEVER, math.max(soon, at) + ms) end

-- column is each step-th argument from the first on.
local function column(first, step)
  local values, n = {}, 0
  for i = first, #ARGV, step do
    n = n + 1
    values[n] = ARGV[i]
  end
  return values
end

-- many runs a command with a list of values, at most 512, if there are any.
local function many(command, key, values)
  if #values > 0 then call(command, key, unpack(values)) end
end

-- A small hash with short values is a list for the server, which it searches from the front: some microseconds for each id. One long
-- value makes a table of it for good. The field of that value is the empty id, which no message has.
local FILLER = string.rep('.', 65)

-- store writes fields and values of the records or the states.
local function store(key, values)
  if #values == 0 then return end
  values[#values + 1] = ''
  values[#values + 1] = FILLER
  call('HSET', key, unpack(values))
end

local function count(counter, n)
  if n > 0 then call('HINCRBY', COUNTERS, counter, n) end
end

-- allow_growth lets the writes that follow through where the server is out of memory. It refuses a script whose first write
-- may need memory, so the first one here removes a member that no set has. What is queued can then be worked off.
local function allow_growth() call('ZREM', LEASED, '') end

-- head is the earliest due time, nil where nothing is scheduled.
local function head()
  local first = call('ZRANGE', SCHEDULED, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2])
end

-- hint tells those who watch that the head has moved to an earlier time than before. A server that refuses it costs a hint.
local function hint(before, after)
  if after and (not before or after < before) then redis.pcall(ARGV[1], ARGV[2], decimal(after)) end
end
