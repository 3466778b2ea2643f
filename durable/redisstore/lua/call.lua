-- Precedes each script without tokens. The script takes effect once, however often copies of the
-- call are sent and however late they arrive.
-- KEYS: as in partition.lua.
-- ARGV: 1 and 2 as in head.lua, 3 caller or '' for a call without copies, 4 the number of the call,
--       5 the instant after which the call must not take effect, 6 the number of partitions; and
--       the arguments of the script.
-- Result: for a copy of the caller's last call: the result of that call, with the present time. For
--         a rejected copy: 'late', the instant that argument 5 must exceed, '1' if a call that has
--         taken effect may have been forgotten.
--
-- The field p:caller of the counters has the number of the caller's last call, its last instant,
-- and the statuses. The field is removed some time after that instant has passed. The field
-- forgotten has the latest instant of the removed fields. Calls up to that instant are rejected, so
-- that they cannot take effect again if the clock is set back.

local field = 'p:' .. ARGV[3]
local counters = call('HMGET', COUNTERS, 'enqueued', 'largest', 'forgotten', field, 'partitions')
local forgotten = tonumber(counters[3]) or 0

-- The queue was deleted and created again: ids belong to other partitions now.
if counters[5] and counters[5] ~= ARGV[6] then
  return redis.error_reply('PARTITIONS ' .. ARGV[6] .. '; the queue now has ' .. counters[5])
end

local MAX_AHEAD = 7200000 -- driver.MaxAhead

if ARGV[3] ~= '' then
  local number, statuses
  if counters[4] then number, statuses = string.match(counters[4], '^(%d+) %d+ (%d*)$') end
  if number == ARGV[4] then
    -- WAIT waits for the last write of its connection. The first copy may have used another one.
    allow_growth()
    call('HSET', COUNTERS, field, counters[4])
    return { sec, usec, statuses, '', '' }
  end
  local after, last = math.max(now, forgotten), tonumber(ARGV[5])
  if last <= after or last > after + MAX_AHEAD or number and tonumber(number) > tonumber(ARGV[4]) then
    return { 'late', decimal(after), forgotten >= last and '1' or '0' }
  end
end

-- forget removes the fields of calls whose last instant has passed. For each new caller, and for
-- every 16th call of other callers, it looks at four random fields. At any time about a quarter of
-- the fields therefore belong to calls whose instant has passed.
local function forget()
  local some, gone = call('HRANDFIELD', COUNTERS, -4, 'WITHVALUES'), {}
  for i = 1, #some, 2 do
    if sub(some[i], 1, 2) == 'p:' then
      local last = tonumber(string.match(some[i + 1], '^%d+ (%d+) ') or 0)
      if last < now then
        gone[#gone + 1] = some[i]
        forgotten = math.max(forgotten, last)
      end
    end
  end
  if #gone > 0 then
    call('HDEL', COUNTERS, unpack(gone))
    call('HSET', COUNTERS, 'forgotten', decimal(forgotten))
  end
end

-- remember stores the statuses of this call, together with other fields of the counters. It always
-- writes, if necessary a counter as it is: the statuses may depend on changes of other connections,
-- and WAIT does not wait for them unless its own connection writes later.
local function remember(statuses, fields)
  if ARGV[3] ~= '' then
    fields[#fields + 1], fields[#fields + 2] = field, ARGV[4] .. ' ' .. ARGV[5] .. ' ' .. statuses
  end
  if #fields == 0 then fields = { 'enqueued', counters[1] or '0' } end
  call('HSET', COUNTERS, unpack(fields))
  if ARGV[3] ~= '' and (not counters[4] or tonumber(ARGV[4]) % 16 == 0) then forget() end
end
