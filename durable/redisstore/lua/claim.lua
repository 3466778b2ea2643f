-- Ends up to 256 expired leases, and leases messages in order of due time and id. If the answer to
-- the consumer's last claim was lost, the script renews the leases of that claim, returns its
-- messages again, and leases no others.
-- KEYS: as in partition.lua.
-- ARGV: 1 PUBLISH or SPUBLISH, 2 channel of hints, 3 horizon in ms, 4 number of messages, 5 bytes
--       of bodies, 6 visibility in ms, 7 number of crashes at which a message becomes dead (0:
--       none), 8 number of dead letters to keep, 9 their age in ms, 10 bytes of their bodies, 11
--       number of messages that begin with the claim if they are due, 12 lease of other messages in
--       ms, 13 consumer or '', 14 the highest token that it has received, 15 number of consumers to
--       remember, 16 number of the claim or '0', 17 '1' if the consumer has received no answer to
--       its previous claim, 18 this process.
-- Result: sec, usec, the next due time or '0', the end of the first lease or '0', the ends of
--         leases (7 bytes each), number of messages that are set aside, '1' if the partition is
--         paused; then for each message: id, record, state. If keys were lost, and their messages
--         are not yet back in a set (create.lua): 'lost'.
-- Runs under OOM: each part removes something before it adds something.
--
-- A scheduled message whose record cannot be read is set aside: the message stays in the set of
-- scheduled messages with a negated score. The message costs later claims nothing, and a script of
-- a newer version puts it back. The counter 'aside' is the lowest VERSION among the scripts that
-- have set messages aside.
--
-- The counter 'k:' with a consumer's name describes the consumer's last claim: its number and its
-- first and last tokens, 7 bytes each. If the claim returned no messages, the last token is 0. The
-- counter 'i:' with the name has the ids of the messages in the order of the tokens: the length of
-- each (1 byte), and then all ids. The counter 'consumers' lists the names.

local before, aside = head()
local max, visibility, hold = tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[12])
local consumer, seen = ARGV[13], tonumber(ARGV[14])
local known = call('HMGET', COUNTERS, 'largest', 'token', 'aside', 'k:' .. consumer, 'paused', 'created', 'mending')
if not known[6] or known[7] or call('HEXISTS', RECORDS, '') == 0 or call('HEXISTS', STATES, '') == 0 or
    not (call('ZSCORE', SCHEDULED, '') and call('ZSCORE', LEASED, '') and call('ZSCORE', DEAD, '')) then
  return { 'lost' }
end
local result = { sec, usec, '0', '0', '', '0', known[5] and '1' or '0' }
local number, repeated = tonumber(ARGV[16]), ARGV[17] == '1'
if known[4] and #known[4] ~= 21 then known[4] = false end -- damaged

-- The consumer has received the answer to a later claim, and has given up this one.
if known[4] and number < unpack7(known[4], 1) then return result end

local lost = {} -- ids of members without a record

-- set_aside sets unreadable messages aside. members are scores and ids.
local function set_aside(members)
  if #members == 0 then return end
  call_list('ZADD', SCHEDULED, members)
  aside = true
  if not known[3] or tonumber(known[3]) > VERSION then call('HSET', COUNTERS, 'aside', VERSION) end
end

-- put_back restores up to 256 messages that an older version has set aside.
local function put_back()
  local found = call('ZRANGEBYSCORE', SCHEDULED, '-inf', '(0', 'WITHSCORES', 'LIMIT', 0, 256)
  local members = {}
  for i = 1, #found, 2 do
    members[i], members[i + 1] = decimal(-tonumber(found[i + 1])), found[i]
  end
  allow_growth()
  call_list('ZADD', SCHEDULED, members)
  if #found < 512 then
    call('HDEL', COUNTERS, 'aside')
    known[3] = false
  end
  before, aside = head()
end

if aside and tonumber(known[3] or 0) < VERSION then put_back() end

-- remember appends a field and its value: the number of this claim and the tokens that the consumer
-- may not have received.
local function remember(fields, first, last)
  if consumer == '' then return end
  fields[#fields + 1] = 'k:' .. consumer
  fields[#fields + 1] = pack7(number) .. pack7(first) .. pack7(last)
  if known[4] then return end
  local names = {}
  for name in string.gmatch(call('HGET', COUNTERS, 'consumers') or '', '[^\n]+') do
    if name ~= consumer then names[#names + 1] = name end
  end
  names[#names + 1] = consumer
  while #names > tonumber(ARGV[15]) do
    local name = table.remove(names, 1)
    call('HDEL', COUNTERS, 'k:' .. name, 'i:' .. name)
  end
  fields[#fields + 1] = 'consumers'
  fields[#fields + 1] = table.concat(names, '\n')
end

-- unseen returns the messages of the consumer's last claim that it has not received and that are
-- still leased, as id and state.
local function unseen()
  local first, last = unpack7(known[4], 8), unpack7(known[4], 15)
  local packed = call('HGET', COUNTERS, 'i:' .. consumer) or ''
  local n = math.min(last - first + 1, 256, #packed)
  local ids, all, at = {}, {}, 1 + n
  for i = 1, n do
    local length = byte(packed, i)
    ids[i], at = sub(packed, at, at + length - 1), at + length
  end
  local states = n > 0 and call('HMGET', STATES, unpack(ids))
  for i, id in ipairs(ids) do
    local s, token = valid_state(states[i]), first + i - 1
    if token > seen and s and (kind(s) == 'L' or kind(s) == 'F') and unpack7(s, 2) == token then all[#all + 1] = { id, s } end
  end
  return all
end

-- redeliver renews the leases of unseen messages and returns them. If there are none, it records
-- only the number of this claim.
local function redeliver(messages)
  local leases, ends = {}, {}
  for _, m in ipairs(messages) do
    local id, s = m[1], m[2]
    local record = call('HGET', RECORDS, id)
    if valid_record(record) then
      local lease = kind(s) == 'F' and lease_end(now, visibility) or lease_end(due(s), hold)
      leases[#leases + 1], leases[#leases + 2] = decimal(lease), id
      local n = #ends + 1
      ends[n] = pack7(lease)
      result[3 * n + 5], result[3 * n + 6], result[3 * n + 7] = id, record, s
    end
  end
  local fields = {}
  allow_growth()
  if #ends == 0 then
    remember(fields, 1, 0)
  else
    max = 0
    call_list('ZADD', LEASED, leases)
    result[5] = table.concat(ends)
    remember(fields, unpack7(known[4], 8), unpack7(known[4], 15))
  end
  call('HSET', COUNTERS, unpack(fields))
  known[4] = known[4] or true -- the name is among the consumers now
end

local missed = known[4] and unpack7(known[4], 15) > seen
if consumer ~= '' and (missed or repeated) then redeliver(missed and unseen() or {}) end
if known[5] then max = 0 end

local expired = call('ZRANGEBYSCORE', LEASED, '-inf', decimal(now), 'LIMIT', 0, 256)
if #expired > 0 then
  local limit, crashed, buried = tonumber(ARGV[7]), 0, 0
  local states = call('HMGET', STATES, unpack(expired))
  local fresh, back, dead, unreadable, removed = {}, {}, {}, {}, {}
  for i, id in ipairs(expired) do
    local s = valid_state(states[i])
    local k = s and kind(s)
    if k ~= 'L' and k ~= 'F' then -- the state is lost or damaged: the record decides
      local record = call('HGET', RECORDS, id)
      if not record then
        lost[#lost + 1] = id
      elseif not valid_record(record) then
        unreadable[#unreadable + 1], unreadable[#unreadable + 2] = decimal(-now), id
      elseif is_dead(k) then
        dead[#dead + 1], dead[#dead + 2] = decimal(unpack7(s, 24)), id
      else
        s, k = s or moved(false, 'L', unpack7(record, 9)), 'L'
      end
    end
    local planned, _, series = rare_parts(s or '')
    if k == 'F' and planned == NEVER7 then
      removed[#removed + 1], crashed = id, crashed + 1
    elseif k == 'L' or k == 'F' then
      local at, set = due(s), back
      if k == 'L' then
        s = 'S' .. sub(s, 2)
      else
        local crashes, died = unpack4(s, 20) + 1, ZERO7
        if crashes > 1 then at = math.min(NEVER, now_ceil + math.min(60, 2 ^ (crashes - 2)) * 1000) end -- contract.CrashDelay
        if planned ~= ZERO7 then at = math.max(at, unpack7(planned, 1)) end
        if limit > 0 and crashes >= limit then
          if series ~= '' then
            at = NEVER
          else
            k, died, set, buried = 'X', pack7(now), dead, buried + 1
          end
        end
        s = (k == 'X' and 'X' or 'S') .. sub(s, 2, 8) .. pack7(at) .. sub(s, 16, 19) .. pack4(crashes) .. died .. rare(planned, ZERO4, series) ..
          'the consumer process ended or hung ' .. crashes .. ' times during delivery, last ' .. process(s)
        if k == 'X' then at = now end
        crashed = crashed + 1
      end
      fresh[#fresh + 1], fresh[#fresh + 2] = id, s
      set[#set + 1], set[#set + 2] = decimal(at), id
    end
  end
  call_list('ZREM', LEASED, expired)
  store(STATES, fresh)
  call_list('ZADD', SCHEDULED, back)
  add_dead(dead)
  set_aside(unreadable)
  remove('cancelled', removed)
  count('crashed', crashed)
  count('buried', buried)
end
trim_dead(tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]))

-- Due messages are read without their scores, which would cost more than the rest of the call.
local ids, dues = {}, {} -- due messages have no entry in dues
if max > 0 and (#expired > 0 or before and before <= now) then
  ids = call('ZRANGEBYSCORE', SCHEDULED, 0, decimal(now), 'LIMIT', 0, max)
end
if #ids < max then
  local horizon = decimal(now + tonumber(ARGV[3]))
  local found = call('ZRANGEBYSCORE', SCHEDULED, '(' .. decimal(now), horizon, 'WITHSCORES', 'LIMIT', 0, max - #ids)
  for i = 1, #found, 2 do
    local n = #ids + 1
    ids[n], dues[n] = found[i], tonumber(found[i + 1])
  end
end

-- If the bodies may not fit, their lengths are read first, so that only bodies that fit are copied.
local bytes_left = tonumber(ARGV[5])
if not known[1] or tonumber(known[1]) * max > bytes_left then
  local fit = 0
  for i, id in ipairs(ids) do
    bytes_left = bytes_left - math.max(0, call('HSTRLEN', RECORDS, id) - 19)
    if bytes_left < 0 and i > 1 then break end
    fit = i
  end
  for i = #ids, fit + 1, -1 do ids[i] = nil end
end

if #ids > 0 then
  local records = call('HMGET', RECORDS, unpack(ids))
  local states = call('HMGET', STATES, unpack(ids))
  -- Tokens rise even if a failover has lost the last ones, unless the clock was also set back.
  local token = math.max(tonumber(known[2] or 0), tonumber(sec) * 1000000 + tonumber(usec) - 1)
  local prefix -- of the token: all but the last byte
  local firing = tonumber(ARGV[11])
  local fresh, leases, ends, n, unreadable = {}, {}, {}, 0, {}
  local k, last, lease, packed, length, by -- most leases end at the same time
  local taken, lengths = {}, {}
  for i, id in ipairs(ids) do
    local record, s = records[i], valid_state(states[i])
    if valid_record(record) then
      local at, at7 = dues[i] or now, nil
      if dues[i] then
        -- The due time is not read from the record: the message may have been moved, and its state
        -- lost.
        at7 = pack7(at)
      else
        at7 = sub(s or record, 9, 15)
        if unpack7(at7, 1) > now then at7 = pack7(now) end -- the score decides
      end
      n = n + 1
      local state = n <= firing and not dues[i] and not (s and unpack4(s, 20) > 1) and 'F' or 'L'
      if at ~= last or state ~= k then
        local ending = lease_end(at, state == 'F' and visibility or hold)
        k, last, lease, packed = state, at, decimal(ending), pack7(ending)
        length, by = ZERO7, ''
        if k == 'F' then length, by = pack7(#ARGV[18]), ARGV[18] end
      end
      ends[n], taken[n], lengths[n] = packed, id, #id
      local digit = (token + n) % 256
      if not prefix or digit == 0 then prefix = sub(pack7(token + n), 1, 6) end
      if s then
        state = state .. prefix .. char(digit) .. at7 .. sub(s, 16, 23) .. length .. sub(s, 31) .. by
      else
        state = state .. prefix .. char(digit) .. at7 .. ZERO8 .. length .. ZERO2 .. by
      end
      fresh[2 * n - 1], fresh[2 * n] = id, state
      leases[2 * n - 1], leases[2 * n] = lease, id
      result[3 * n + 5], result[3 * n + 6], result[3 * n + 7] = id, record, state
    elseif record then
      unreadable[#unreadable + 1], unreadable[#unreadable + 2] = decimal(-(dues[i] or tonumber(call('ZSCORE', SCHEDULED, id)))), id
    else
      lost[#lost + 1] = id
    end
  end
  local first = aside and call('ZCOUNT', SCHEDULED, '-inf', '(0') or 0
  call('ZREMRANGEBYRANK', SCHEDULED, first, first + #ids - 1) -- the first ones that are not set aside
  set_aside(unreadable)
  if n > 0 then
    result[5] = table.concat(ends)
    store(STATES, fresh)
    call_list('ZADD', LEASED, leases)
    local fields = { 'token', decimal(token + n) }
    if consumer ~= '' then fields[3], fields[4] = 'i:' .. consumer, char(unpack(lengths)) .. table.concat(taken) end
    remember(fields, token + 1, token + n)
    call('HSET', COUNTERS, unpack(fields))
  end
end

if #lost > 0 then
  call_list('HDEL', STATES, lost)
  count('lost', #lost)
end
local after = head()
hint(before, after)
if after then result[3] = decimal(after) end
if aside then result[6] = decimal(call('ZCOUNT', SCHEDULED, '-inf', '(0')) end
local first = call('ZRANGE', LEASED, 0, 0, 'WITHSCORES')
if first[2] and first[1] ~= '' then result[4] = decimal(tonumber(first[2])) end
return result
