-- Precedes scripts that use the limits of a queue: the fields of its hash, in the order of
-- Limits of package contract.
-- KEYS, ARGV: as in the script.

local LIMITS = { 'max_body', 'max_attempts', 'dead_limit', 'dead_bytes', 'dead_age' }
