-- ARGV: table, key, what it must hold ('' = nothing, else '=' .. value), its new value, number of further rows, then
-- key, value, ... of these, then keys to delete. For tables whose rows never expire.
-- Reply: 1 if the key now holds the new value; 0 if it holds another one, and nothing was written.
--@ oom
local rows = 'cw:table:' .. ARGV[1]
local found = redis.call('HGET', rows, ARGV[2])
-- It already holds the new value if the call is repeated, after a lost answer or with repeated work.
if found ~= ARGV[4] and (found and '=' .. found or '') ~= ARGV[3] then
  return 0
end
local past = 6 + 2 * tonumber(ARGV[5])
for i = 6, past - 1, 2 do
  redis.call('HSET', rows, ARGV[i], ARGV[i + 1])
end
redis.call('HSET', rows, ARGV[2], ARGV[4])
for i = past, #ARGV do
  redis.call('HDEL', rows, ARGV[i])
end
return 1
