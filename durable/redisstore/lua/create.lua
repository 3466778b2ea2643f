-- Makes those keys of a partition that are missing. While a Cluster moves the slot of a partition, it refuses each script for
-- which some keys are there and others are not (TRYAGAIN). So no key of a partition is ever empty: a hash has a field,
-- and a set has a member, which no message has. The scores of these members are later than all others.
-- KEYS: those of partition.lua.
-- ARGV: none.
-- Result: '1'.

for i = 1, 2 do call('HSETNX', KEYS[i], '', FILLER) end
call('HSETNX', COUNTERS, 'enqueued', 0)
for i = 3, #KEYS do
  if KEYS[i] ~= COUNTERS then call('ZADD', KEYS[i], 'NX', decimal(LAST), '') end
end
return '1'
