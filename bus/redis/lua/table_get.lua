-- ARGV: table, then keys (none = all). Reply: key, value, ... of the rows that have not expired.
local clock = redis.call('TIME')
local now = string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
local gone = {}
for _, key in ipairs(redis.call('ZRANGEBYSCORE', 'cw:expiry:' .. ARGV[1], '-inf', now)) do
  gone[key] = true
end
local reply = {}
if #ARGV == 1 then
  local all = redis.call('HGETALL', 'cw:table:' .. ARGV[1])
  for i = 1, #all, 2 do
    if not gone[all[i]] then
      reply[#reply + 1] = all[i]
      reply[#reply + 1] = all[i + 1]
    end
  end
  return reply
end
for i = 2, #ARGV do
  local value = not gone[ARGV[i]] and redis.call('HGET', 'cw:table:' .. ARGV[1], ARGV[i])
  if value then
    reply[#reply + 1] = ARGV[i]
    reply[#reply + 1] = value
  end
end
return reply
