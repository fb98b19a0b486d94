-- Make a group on every partition at once; one that exists stays where it is.
-- ARGV: topic, partitions if the topic must be made, group, '1' = start at the end, topics at most, groups at most.
-- Reply: {'T', topics} or {'G', groups} if there are too many already; the number of partitions of the topic; or that number
-- with a minus sign if nothing was made, because there are packs: `unpack` them and
-- call again. Redis counts entries, and a group counts records; from now on there are no new packs.
local topic, group = ARGV[1], ARGV[3]
local groups_key = 'cw:groups:' .. topic
local topics, groups = redis.call('HLEN', 'cw:topics'), redis.call('HLEN', groups_key)
if topics >= tonumber(ARGV[5]) and redis.call('HEXISTS', 'cw:topics', topic) == 0 then
  return { 'T', topics }
end
if groups >= tonumber(ARGV[6]) and redis.call('HEXISTS', groups_key, group) == 0 then
  return { 'G', groups }
end
redis.call('HSETNX', 'cw:topics', topic, ARGV[2])
local topic_key = 'cw:topic:' .. topic
local partitions = tonumber(redis.call('HGET', 'cw:topics', topic))
redis.call('HSET', topic_key, 'plain', '1')
for p = 0, partitions - 1 do
  local bounds = redis.call('HMGET', topic_key, p .. ':first', p .. ':packed')
  if tonumber(bounds[2] or '0') > tonumber(bounds[1] or '0') then
    return -partitions
  end
end
for p = 0, partitions - 1 do
  local bounds = redis.call('HMGET', topic_key, p .. ':first', p .. ':end')
  local start = tonumber((ARGV[4] == '1' and bounds[2] or bounds[1]) or '0')
  local id = '0-0'
  if start > 0 then
    id = string.format('%.0f-1', start - 1)
  end
  local made = redis.pcall('XGROUP', 'CREATE', 'cw:log:' .. topic .. ':' .. p, group, id, 'MKSTREAM')
  if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
    return made
  end
end
local clock = redis.call('TIME')
redis.call('HSET', 'cw:groups:' .. topic, group, string.format('%.0f', tonumber(clock[1]) * 1000))
return partitions
