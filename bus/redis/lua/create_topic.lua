-- ARGV: topic, partitions, topics at most. Reply: the number of partitions that the topic has; or, with a minus sign, how
-- many topics there are already.
local topics = redis.call('HLEN', 'cw:topics')
if topics >= tonumber(ARGV[3]) and redis.call('HEXISTS', 'cw:topics', ARGV[1]) == 0 then
  return -topics
end
redis.call('HSETNX', 'cw:topics', ARGV[1], ARGV[2])
return tonumber(redis.call('HGET', 'cw:topics', ARGV[1]))
