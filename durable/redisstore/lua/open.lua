-- Creates a queue or joins an existing one.
-- KEYS: 1 the hash of the queue's version, partitions and limits.
-- ARGV: 1 version of the format, 2 partitions (0: any number), 3 '1' to create no queue, 4 '1' to
--       change the limits of an existing queue, 5 partitions of a new queue, 6 to 10 each limit (0:
--       any), 11 to 15 each limit of a new queue.
-- Result: type of the key before the call, version, when the queue was created, '1' if the keys of
--         all partitions exist, partitions, each limit; '' for a missing field. The type is
--         'deleting' after an interrupted deletion: see delete_queue.lua.

local before = call('TYPE', KEYS[1]).ok
local deleted = before == 'hash' and call('HGET', KEYS[1], 'deleted')
if deleted == 'begun' then return { 'deleting' } end
local created = now -- later than the creation of a deleted queue
if deleted then
  before, created = 'none', math.max(now, tonumber(call('HGET', KEYS[1], 'created') or 0) + 1)
  if ARGV[3] ~= '1' then call('UNLINK', KEYS[1]) end
end
if before == 'none' and ARGV[3] == '1' or before ~= 'none' and before ~= 'hash' then
  return { before }
elseif before == 'none' then
  call('HSET', KEYS[1], 'version', ARGV[1], 'partitions', ARGV[5], 'created', decimal(created))
  for i, limit in ipairs(LIMITS) do call('HSET', KEYS[1], limit, ARGV[10 + i]) end
elseif ARGV[4] == '1' then
  local meta = call('HMGET', KEYS[1], 'version', 'partitions')
  local fits = meta[1] == ARGV[1] and (ARGV[2] == '0' or ARGV[2] == meta[2])
  for i, limit in ipairs(LIMITS) do fits = fits and (ARGV[5 + i] ~= '0' or tonumber(call('HGET', KEYS[1], limit) or '')) end
  for i, limit in ipairs(LIMITS) do
    if fits and ARGV[5 + i] ~= '0' then call('HSET', KEYS[1], limit, ARGV[5 + i]) end
  end
end
local result = { before }
for i, value in ipairs(call('HMGET', KEYS[1], 'version', 'created', 'complete', 'partitions', unpack(LIMITS))) do result[i + 1] = value or '' end
return result
