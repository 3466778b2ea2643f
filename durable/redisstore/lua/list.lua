-- Reads a page of a sorted set with the records, without messages that are set aside or cannot be
-- read.
-- KEYS: as in partition.lua.
-- ARGV: 1 number of the set in KEYS, 2 and 3 score and id of the last message on the previous page
--       ('' and '' for the first page), 4 length of the page, 5 bytes of records after which the
--       page ends early.
-- Result: '1' if more members follow, score and id of the last member that was read; then for each
--         message: id, record, state or '', score.

local key, limit, bytes_left = KEYS[tonumber(ARGV[1])], tonumber(ARGV[4]), tonumber(ARGV[5])

-- less compares two ids as the sorted set does. Lua's operator < would use the locale of the
-- server.
local function less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- first returns the rank of the first member after the cursor, by binary search among the members
-- with its score, because the cursor's member may be gone.
local function first()
  if ARGV[2] == '' then return call('ZCOUNT', key, '-inf', '(0') end -- messages that are set aside come first
  local low = call('ZCOUNT', key, '-inf', '(' .. ARGV[2])
  local high = low + call('ZCOUNT', key, ARGV[2], ARGV[2])
  while low < high do
    local middle = floor((low + high) / 2)
    if less(ARGV[3], call('ZRANGE', key, middle, middle)[1]) then high = middle else low = middle + 1 end
  end
  return low
end

local rank = first()
local page = call('ZRANGE', key, rank, rank + limit - 1, 'WITHSCORES')
local result = { '0', '0', '' }
for i = 1, #page, 2 do
  local id, score = page[i], decimal(tonumber(page[i + 1]))
  local record = id ~= '' and call('HGET', RECORDS, id)
  result[2], result[3], rank = score, id, rank + 1
  if valid_record(record) then
    local n = #result
    result[n + 1], result[n + 2], result[n + 3], result[n + 4] = id, record, call('HGET', STATES, id) or '', score
    bytes_left = bytes_left - #record
    if bytes_left <= 0 then break end
  end
end
if rank < cardinality(key) then result[1] = '1' end
return result
