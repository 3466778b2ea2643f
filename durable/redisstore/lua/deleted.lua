-- Precedes create.lua. Removes the note that delete.lua has left, if the queue was created again.
-- KEYS: those of partition.lua. ARGV: those of the script.

local created = call('HGET', KEYS[6], 'deleted')
if created and created ~= ARGV[2] then call('UNLINK', KEYS[6]) end
