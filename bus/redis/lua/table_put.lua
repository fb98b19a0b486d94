-- ARGV: table, milliseconds to keep ('' = permanently), rows at most that expire, then key, value, ...
--@ oom
local rows, expiry = 'cw:table:' .. ARGV[1], 'cw:expiry:' .. ARGV[1]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
for _, key in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)) do
  redis.call('HDEL', rows, key)
  redis.call('ZREM', expiry, key)
end
for i = 4, #ARGV, 2 do
  redis.call('HSET', rows, ARGV[i], ARGV[i + 1])
  if ARGV[2] ~= '' then
    redis.call('ZADD', expiry, string.format('%.0f', now + tonumber(ARGV[2])), ARGV[i])
  else
    redis.call('ZREM', expiry, ARGV[i])
  end
end
local surplus = redis.call('ZCARD', expiry) - tonumber(ARGV[3])
if surplus > 0 then
  local first = redis.call('ZPOPMIN', expiry, surplus)
  for i = 1, #first, 2 do
    redis.call('HDEL', rows, first[i])
  end
  redis.call('HINCRBY', 'cw:evicted', 'table ' .. ARGV[1], surplus)
end
return 1
