-- Calls the newest command that the scripts need, on a server that does not report its version.
-- KEYS: 1 the set of members.
-- ARGV: none.
-- Result: '1', or the error from an older server.

call('ZMSCORE', KEYS[1], '')
return '1'
