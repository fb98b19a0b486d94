-- Record that a group is in use. ARGV: topic, group.
--@ oom
if redis.call('HEXISTS', 'cw:groups:' .. ARGV[1], ARGV[2]) == 0 then
  return 0
end
local clock = redis.call('TIME')
redis.call('HSET', 'cw:groups:' .. ARGV[1], ARGV[2], string.format('%.0f', tonumber(clock[1]) * 1000))
return 1
