-- Looks for set members, or states, without a record, and removes them. Removed members count as
-- lost.
-- KEYS: as in partition.lua.
-- ARGV: 1 number of the key in KEYS (2 for states), 2 cursor of ZSCAN or HSCAN, 3 its COUNT, 4 '1'
--       to repair.
-- Result: next cursor, strays, repaired.

local number = tonumber(ARGV[1])
local scan, remove = 'ZSCAN', 'ZREM'
if number == 2 then scan, remove = 'HSCAN', 'HDEL' end

local found = call(scan, KEYS[number], ARGV[2], 'COUNT', ARGV[3])
local strays, repaired = 0, 0
for i = 1, #found[2], 2 do
  local id = found[2][i]
  if id ~= '' and call('HEXISTS', RECORDS, id) == 0 then -- the empty id is the filler
    strays = strays + 1
    if ARGV[4] == '1' then repaired = repaired + call(remove, KEYS[number], id) end
  end
end
if number ~= 2 then count('lost', repaired) end
return { found[1], strays, repaired }
