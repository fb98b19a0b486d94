-- Timed messages. ARGV: queue, then
--   'add', id, milliseconds from now, payload, limit -> 1, 0 if the id exists, or minus the bytes that are
--                                                       stored already if the limit would be exceeded
--   'claim', how many, milliseconds to hide them     -> {id, payload, ...} of those that are due
--   'remove', id, key to forget in ten minutes
--   'next'                                           -> milliseconds until one is due, '' if there is none
--   'kept'                                           -> bytes of these and of half messages
local queue, verb = 'cw:later:' .. ARGV[1], ARGV[2]
local items = queue .. ':items'
--@ clock
--@ kept
local function at(milliseconds)
  return number(now + tonumber(milliseconds))
end

if verb ~= 'add' then
--@ oom
end
if verb == 'add' then
  local kept = kept_bytes(ARGV[1])
  if kept + #ARGV[5] > tonumber(ARGV[6]) then
    return -math.max(1, kept)
  end
  if not keep(ARGV[1], items, ARGV[3], ARGV[5]) then
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
elseif verb == 'remove' then
  redis.call('PEXPIRE', ARGV[4], 600000)
  redis.call('ZREM', queue, ARGV[3])
  return drop(ARGV[1], items, ARGV[3])
elseif verb == 'kept' then
  return kept_bytes(ARGV[1])
end
local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
return first[2] and number(math.max(0, tonumber(first[2]) - now)) or ''
