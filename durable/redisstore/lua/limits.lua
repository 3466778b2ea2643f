-- Precedes scripts that use the limits of a queue: the fields of its hash, in the order of
-- Config.Limits of package driver.
-- KEYS, ARGV: those of the script.

local LIMITS = { 'max_body', 'max_attempts', 'dead_limit', 'dead_bytes', 'dead_age' }
