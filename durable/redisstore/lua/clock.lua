-- Precedes every script and reads the server's clock once. KEYS, ARGV: as in the script. Sets
-- sec, usec (strings as from TIME), now and now_ceil.

local call, floor, format = redis.call, math.floor, string.format

local NEVER = 4503599627370496 -- 2^52, the latest instant
local clock = call('TIME')
local sec, usec = clock[1], clock[2]
local now = tonumber(sec) * 1000 + floor(tonumber(usec) / 1000) -- milliseconds, rounded down
local now_ceil = now                                            -- rounded up, so that sums are never early
if tonumber(usec) % 1000 > 0 then now_ceil = now + 1 end

-- decimal formats an instant or a number. tostring would round numbers of more than 14 digits. %d
-- is faster than %.0f, but has 32 bits on a 32-bit server.
local WHOLE = format('%d', NEVER) == '4503599627370496' and '%d' or '%.0f'
local function decimal(n) return format(WHOLE, n) end
