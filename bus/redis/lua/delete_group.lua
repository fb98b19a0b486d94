-- ARGV: topic, group. Reply: 1 if the group existed.
local found = 0
for p = 0, tonumber(redis.call('HGET', 'cw:topics', ARGV[1]) or '0') - 1 do
  local gone = redis.pcall('XGROUP', 'DESTROY', 'cw:log:' .. ARGV[1] .. ':' .. p, ARGV[2])
  if gone == 1 then
    found = 1
  end
  local own = ARGV[1] .. ':' .. p .. ':' .. ARGV[2]
  redis.call('DEL', 'cw:due:' .. own, 'cw:order:' .. own, 'cw:parked:' .. own)
  redis.call('HDEL', 'cw:holds:' .. ARGV[1], p .. ':parked:' .. ARGV[2])
end
redis.call('HDEL', 'cw:groups:' .. ARGV[1], ARGV[2])
if redis.call('HLEN', 'cw:groups:' .. ARGV[1]) == 0 then
  redis.call('HDEL', 'cw:topic:' .. ARGV[1], 'plain')
end
return found
