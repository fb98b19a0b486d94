-- ARGV: table, milliseconds to keep ('' = for good), then key, value, ...
local rows, expiry = 'cw:table:' .. ARGV[1], 'cw:expiry:' .. ARGV[1]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
for _, key in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', string.format('%.0f', now), 'LIMIT', 0, 100)) do
  redis.call('HDEL', rows, key)
  redis.call('ZREM', expiry, key)
end
for i = 3, #ARGV, 2 do
  redis.call('HSET', rows, ARGV[i], ARGV[i + 1])
  if ARGV[2] ~= '' then
    redis.call('ZADD', expiry, string.format('%.0f', now + tonumber(ARGV[2])), ARGV[i])
  else
    redis.call('ZREM', expiry, ARGV[i])
  end
end
return 1
