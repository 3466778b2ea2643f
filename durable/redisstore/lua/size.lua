-- Read before the script that stores messages: the bounds of a partition.
-- KEYS: those of partition.lua. ARGV: the last two, which are taken away, are the largest number of messages of a partition, and
-- the largest sum of the bytes of their records; the others are those of the script.

local most_bytes, most_messages = tonumber(table.remove(ARGV)), tonumber(table.remove(ARGV))
local SAMPLE = 128

-- mean_bytes is the mean of the bytes of a record: of all if there are few, else of a sample, which is taken anew when an eighth
-- of the records are new.
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

-- beyond is an error if a partition is too large for more records, which are a list of ids and records. largest is the size of
-- the largest body and its header, false if it is not known.
local function beyond(records, largest)
  local held, more, bytes = call('HLEN', RECORDS), #records / 2, 0
  for i = 2, #records, 2 do bytes = bytes + #records[i] end
  if held + more > most_messages then
    for i = 1, #records, 2 do more = more - call('HEXISTS', RECORDS, records[i]) end -- those that are replaced
    if more > 0 and held + more > most_messages + 1 then -- there is the filler as well
      return redis.error_reply('PARTITIONFULL the partition has ' .. decimal(held - 1) .. ' messages, of ' .. decimal(most_messages) ..
        ' that redisstore.Options.PartitionMessages accepts')
    end
  end
  if more > 0 and not (largest and (held + more) * (largest + 15) <= most_bytes) then
    local sum = held * mean_bytes(held) + bytes
    if sum > most_bytes and held > 1 then
      return redis.error_reply('PARTITIONFULL the partition would have about ' .. decimal(sum) .. ' bytes of messages, of ' ..
        decimal(most_bytes) .. ' that redisstore.Options.PartitionBytes accepts')
    end
  end
end
