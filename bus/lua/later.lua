-- Messages for later. ARGV: queue, then
--   'add', id, milliseconds from now, payload        -> 1, or 0 when there is one of that id
--   'claim', how many, milliseconds to hide them     -> {id, payload, ...} of those that are due
--   'defer', id, milliseconds from now
--   'remove', id, key to forget in ten minutes
--   'next'                                           -> milliseconds until one is due, '' when there is none
local queue, verb = 'cw:later:' .. ARGV[1], ARGV[2]
local items = queue .. ':items'
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function at(milliseconds)
  return string.format('%.0f', now + tonumber(milliseconds))
end

if verb == 'add' then
  if redis.call('HSETNX', items, ARGV[3], ARGV[5]) == 0 then
    return 0
  end
  redis.call('ZADD', queue, at(ARGV[4]), ARGV[3])
  return 1
elseif verb == 'claim' then
  local reply = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', queue, '-inf', at(0), 'LIMIT', 0, ARGV[3])) do
    local payload = redis.call('HGET', items, id)
    if payload then
      redis.call('ZADD', queue, at(ARGV[4]), id)
      reply[#reply + 1] = id
      reply[#reply + 1] = payload
    else
      redis.call('ZREM', queue, id)
    end
  end
  return reply
elseif verb == 'defer' then
  redis.call('ZADD', queue, 'XX', at(ARGV[4]), ARGV[3])
  return 1
elseif verb == 'remove' then
  redis.call('PEXPIRE', ARGV[4], 600000)
  redis.call('ZREM', queue, ARGV[3])
  return redis.call('HDEL', items, ARGV[3])
end
local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
return first[2] and string.format('%.0f', math.max(0, tonumber(first[2]) - now)) or ''
