-- Precedes each script on a partition: its keys, and the form of their values. Functions that only
-- some scripts need are in other files, because each call creates all functions of its script
-- again.
-- KEYS: 1 records, 2 states, 3 scheduled, 4 leased, 5 dead, 6 counters. ARGV: as in the script.
--
-- record: version (1 byte), enqueued (7 bytes), first due time (7), largest number of attempts (4),
--         body
-- state:  kind (1), token (7), due (7), attempts (4), crashes (4), time of death (7), length of the
--         rare data (2), rare data, reason
-- In a firing message, the time of death holds the length of the description of the process that
-- has begun it. The description follows the reason: see contract.Process.
-- rare data: nothing, or planned time (7), postponements (4), series
-- The planned time NEVER7 marks a firing message: see driver.Backend.
--
-- Numbers are big-endian. 7 bytes hold an integer that a double holds exactly. A kind is one of
--   S scheduled   R scheduled by Retry   B scheduled by Release   L leased   F firing
--   X dead        D dead by Bury
-- R, B and D name the call that has moved the message, so that a copy of that call returns the same
-- status. A message without a state has no rare data and has never been claimed or moved; its due
-- time is the score in the set.

local RECORDS, STATES, SCHEDULED, LEASED, DEAD, COUNTERS = unpack(KEYS)
local sub = string.sub
local NEVER7 = '\16\0\0\0\0\0\0' -- NEVER in 7 bytes

local DONE, DUPLICATE, FIRING, NOT_FOUND, LEASE_LOST, EARLY, PAUSED, IS_DEAD, INTERRUPTED = '1', '2', '3', '4', '5', '6', '7', '8', '9'

-- Parts of a state.
local function kind(s) return sub(s, 1, 1) end
local function has_token(s, token) return sub(s, 2, 8) == token end
local function is_dead(k) return k == 'X' or k == 'D' end

-- A deleted queue: see delete.lua.
if call('HEXISTS', COUNTERS, 'deleted') == 1 then return redis.error_reply('NOQUEUE the queue was deleted') end

-- LAST is the score of the empty member of each set (create.lua), later than all other scores.
local LAST = 2 * NEVER

-- cardinality returns the number of messages in a set.
local function cardinality(set) return call('ZCOUNT', set, '-inf', '(' .. decimal(LAST)) end

-- column returns each step-th argument from the first on.
local function column(first, step)
  local values, n = {}, 0
  for i = first, #ARGV, step do
    n = n + 1
    values[n] = ARGV[i]
  end
  return values
end

-- call_list runs a command with a list of values, at most 512, if there are any.
local function call_list(command, key, values)
  if #values > 0 then call(command, key, unpack(values)) end
end

local function count(counter, n)
  if n > 0 then call('HINCRBY', COUNTERS, counter, n) end
end
