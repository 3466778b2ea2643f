-- Ends leases that are over, at most 256 of them, and leases messages in the order of due times and ids.
-- KEYS: those of partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, 3 horizon in ms, 4 number of messages, 5 bytes of bodies, 6 visibility in ms,
--       7 crashes after which a message is dead (0: none), 8 dead letters that are kept, 9 and how long in ms, 10 number of messages that
--       begin at once if they are due, 11 bytes of bodies of dead letters that are kept.
-- Result: sec, usec, the next due time or '0', the end of the first lease or '0', the ends of leases (7 bytes each);
--         then for each message: id, record, state.
-- Runs under OOM: each part removes something before it adds.

local before = head()

local over = call('ZRANGEBYSCORE', LEASED, '-inf', decimal(now), 'LIMIT', 0, 256)
if #over > 0 then
  local limit, crashed, buried = tonumber(ARGV[7]), 0, 0
  local states = call('HMGET', STATES, unpack(over))
  local fresh, back, dead = {}, {}, {}
  for i, id in ipairs(over) do
    local s = sound_state(states[i])
    if not s then -- the state was lost: what the record says is the best there is
      local record = call('HGET', RECORDS, id)
      s = sound_record(record) and moved(false, 'L', unpack7(record, 9))
    end
    if s and (kind(s) == 'L' or kind(s) == 'F') then
      local crashes = unpack4(s, 20)
      local k = 'S'
      if kind(s) == 'F' then
        crashes, crashed = crashes + 1, crashed + 1
        if limit > 0 and crashes >= limit then k, buried = 'X', buried + 1 end
      end
      local n = #fresh
      fresh[n + 1] = id
      fresh[n + 2] = k .. sub(s, 2, 19) .. pack4(crashes) .. (k == 'X' and pack7(now) or ZERO7) .. sub(s, 31)
      local set = k == 'X' and dead or back
      set[#set + 1] = decimal(k == 'X' and now or due(s))
      set[#set + 1] = id
    end
  end
  many('ZREM', LEASED, over)
  store(STATES, fresh)
  many('ZADD', SCHEDULED, back)
  add_dead(dead)
  count('crashed', crashed)
  count('buried', buried)
end
bound_dead(tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[11]))

local result = { sec, usec, '0', '0', '' }
local max = tonumber(ARGV[4])

-- Those that are due come without their scores, which cost the server more than all else of them.
local ids, dues = {}, {} -- no due time: it is over
if max > 0 and (#over > 0 or before and before <= now) then
  ids = call('ZRANGEBYSCORE', SCHEDULED, '-inf', decimal(now), 'LIMIT', 0, max)
end
if #ids < max then
  local horizon = decimal(now + tonumber(ARGV[3]))
  local found = call('ZRANGEBYSCORE', SCHEDULED, '(' .. decimal(now), horizon, 'WITHSCORES', 'LIMIT', 0, max - #ids)
  for i = 1, #found, 2 do
    local n = #ids + 1
    ids[n], dues[n] = found[i], tonumber(found[i + 1])
  end
end

-- Lengths are asked for where the bodies might not fit, so that no more than what fits is copied.
local room, known = tonumber(ARGV[5]), call('HMGET', COUNTERS, 'largest', 'token')
if not known[1] or tonumber(known[1]) * max > room then
  local fit = 0
  for i, id in ipairs(ids) do
    room = room - math.max(0, call('HSTRLEN', RECORDS, id) - 19)
    if room < 0 and i > 1 then break end
    fit = i
  end
  for i = #ids, fit + 1, -1 do ids[i] = nil end
end

if #ids > 0 then
  local records = call('HMGET', RECORDS, unpack(ids))
  local states = call('HMGET', STATES, unpack(ids))
  -- Tokens rise even where a failover has lost the last ones, unless the clock has been set back as well.
  local token = math.max(tonumber(known[2] or 0), tonumber(sec) * 1000000 + tonumber(usec) - 1)
  local prefix -- of the token: all but the last byte
  local visibility, firing = tonumber(ARGV[6]), tonumber(ARGV[10])
  local fresh, leases, ends, n = {}, {}, {}, 0
  local last = now -- most leases end at the same time
  local lease = lease_end(now, visibility)
  local packed = pack7(lease)
  lease = decimal(lease)
  for i, id in ipairs(ids) do
    local record, s = records[i], sound_state(states[i])
    if sound_record(record) then -- else it is a stray, or damaged, and goes from the set: an audit tells of it
      local at, at7 = dues[i] or now, nil
      if dues[i] then
        -- The due time of the record is not asked for: the message may have been moved and its state lost.
        at7 = pack7(at)
      else
        at7 = sub(s or record, 9, 15)
        if unpack7(at7, 1) > now then at7 = pack7(now) end -- the score has it
      end
      if at ~= last then
        local ending = lease_end(at, visibility)
        last, lease, packed = at, decimal(ending), pack7(ending)
      end
      n = n + 1
      ends[n] = packed
      local digit = (token + n) % 256
      if not prefix or digit == 0 then prefix = sub(pack7(token + n), 1, 6) end
      local state = 'L'
      if n <= firing and not dues[i] then state = 'F' end
      if s then
        state = state .. prefix .. char(digit) .. at7 .. sub(s, 16, 23) .. ZERO7 .. sub(s, 31)
      else
        state = state .. prefix .. char(digit) .. at7 .. ZERO15
      end
      fresh[2 * n - 1], fresh[2 * n] = id, state
      leases[2 * n - 1], leases[2 * n] = lease, id
      result[3 * n + 3], result[3 * n + 4], result[3 * n + 5] = id, record, state
    end
  end
  result[5] = table.concat(ends)
  call('ZREMRANGEBYRANK', SCHEDULED, 0, #ids - 1) -- they are the first
  store(STATES, fresh)
  many('ZADD', LEASED, leases)
  call('HSET', COUNTERS, 'token', decimal(token + n))
end

local after = head()
hint(before, after)
if after then result[3] = decimal(after) end
local first = call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')
if first[2] then result[4] = decimal(tonumber(first[2])) end
return result
