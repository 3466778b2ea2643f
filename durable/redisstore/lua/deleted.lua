-- Precedes create.lua. Removes the note that delete.lua has left, if the queue was created later.
-- KEYS: as in partition.lua. ARGV: as in the script.

local created = call('HGET', KEYS[6], 'deleted')
if created and (tonumber(created) or 0) < (tonumber(ARGV[2]) or 0) then call('UNLINK', KEYS[6]) end
