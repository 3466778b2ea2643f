-- Pauses a partition, or resumes it. No message of a paused partition begins.
-- KEYS: as in partition.lua.
-- ARGV: 1 to 6 as in call.lua; 7 '1' to pause, or '0' to resume.
-- Result: sec, usec, DONE, '', ''.
-- Runs under OOM. The counter 'paused' exists while the partition is paused.

allow_growth()
if ARGV[7] == '1' then
  call('HSET', COUNTERS, 'paused', 1)
else
  call('HDEL', COUNTERS, 'paused')
end
redis.pcall(ARGV[1], ARGV[2], '0')
remember(DONE, {})
return { sec, usec, DONE, '', '' }
