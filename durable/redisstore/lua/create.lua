-- Creates the missing keys of a partition. While a Cluster moves the slot of a partition, it
-- rejects each script for which only some of the keys exist (TRYAGAIN). No key of a partition is
-- therefore ever empty: each hash has a field, and each set a member, that is not a message. The
-- scores of these members are later than all others.
-- KEYS: those of partition.lua.
-- ARGV: 1 number of partitions, 2 when the queue was created: see open.lua.
-- Result: '1'.

for i = 1, 2 do call('HSETNX', KEYS[i], '', FILLER) end
call('HSETNX', COUNTERS, 'enqueued', 0)
call('HSET', COUNTERS, 'partitions', ARGV[1])
for i = 3, #KEYS do
  if KEYS[i] ~= COUNTERS then call('ZADD', KEYS[i], 'NX', decimal(LAST), '') end
end
return '1'
