-- Precedes put.lua: the limits on a partition.
-- KEYS: as in partition.lua.
-- ARGV: as in the script; the last two, which are removed, are the maximum number of messages in a
--       partition, and the maximum sum of the sizes of their records in bytes.

local max_bytes, max_messages = tonumber(table.remove(ARGV)), tonumber(table.remove(ARGV))
local SAMPLE = 128

-- mean_bytes returns the mean size of a record in bytes: of all records if there are few, and
-- otherwise of a sample, which is taken again when an eighth of the records is new.
local function mean_bytes(held)
  local known = call('HMGET', COUNTERS, 'enqueued', 'sampled')
  local enqueued = tonumber(known[1] or 0)
  local at, mean = string.match(known[2] or '', '^(%d+) (%d+)$')
  at = tonumber(at)
  if at and at <= enqueued and enqueued - at < held / 8 then return tonumber(mean) end
  local ids = held <= SAMPLE and call('HKEYS', RECORDS) or call('HRANDFIELD', RECORDS, -SAMPLE)
  local bytes = 0
  for _, id in ipairs(ids) do bytes = bytes + call('HSTRLEN', RECORDS, id) end
  mean = math.ceil(bytes / math.max(1, #ids))
  call('HSET', COUNTERS, 'sampled', decimal(enqueued) .. ' ' .. decimal(mean))
  return mean
end

-- size_error returns an error if the partition has no room for records, a list of ids and records.
-- largest is the size of the largest body and its header, or false if it is unknown.
local function size_error(records, largest)
  local held, more, bytes = call('HLEN', RECORDS), #records / 2, 0
  for i = 2, #records, 2 do bytes = bytes + #records[i] end
  if held + more > max_messages then
    for i = 1, #records, 2 do more = more - call('HEXISTS', RECORDS, records[i]) end -- replaced ones
    if more > 0 and held + more > max_messages + 1 then -- with the filler
      return redis.error_reply('PARTITIONFULL the partition has ' .. decimal(held - 1) .. ' messages, of ' .. decimal(max_messages) ..
        ' that redisstore.Options.PartitionMessages accepts')
    end
  end
  if more > 0 and not (largest and (held + more) * (largest + 15) <= max_bytes) then
    local sum = held * mean_bytes(held) + bytes
    if sum > max_bytes and held > 1 then
      return redis.error_reply('PARTITIONFULL the partition would have about ' .. decimal(sum) .. ' bytes of messages, of ' ..
        decimal(max_bytes) .. ' that redisstore.Options.PartitionBytes accepts')
    end
  end
end
