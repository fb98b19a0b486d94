-- ARGV: topic, partitions. Reply: the number of partitions that the topic has.
redis.call('HSETNX', 'cw:topics', ARGV[1], ARGV[2])
return tonumber(redis.call('HGET', 'cw:topics', ARGV[1]))
