-- Messages whose sender has not yet decided whether to send them. ARGV: queue, then
--   'prepare', id, milliseconds until its sender is asked, payload, limit   -> like 'add' of later.lua
--   'look', id                                       -> payload or nothing
--   'claim', how many, milliseconds until they are requested again   -> {id, payload, times asked, ...}
--   'asked', id, milliseconds until it is requested again            -> times asked
--   'resolve', id, outcome, payload for later ('' = its own), milliseconds from now ('' = goes nowhere)
--                                                    -> the effective outcome, '' for an unknown id
local half, verb, id = 'cw:half:' .. ARGV[1], ARGV[2], ARGV[3]
local items, asked = half .. ':items', half .. ':asked'
--@ clock
--@ kept
local function at(milliseconds)
  return number(now + tonumber(milliseconds))
end

if verb ~= 'prepare' then
--@ oom
end
if verb == 'prepare' then
  local kept = kept_bytes(ARGV[1])
  if kept + #ARGV[5] > tonumber(ARGV[6]) then
    return -math.max(1, kept)
  end
  if not keep(ARGV[1], items, id, ARGV[5]) then
    return 0
  end
  redis.call('ZADD', half, at(ARGV[4]), id)
  return 1
elseif verb == 'look' then
  return redis.call('HGET', items, id)
elseif verb == 'claim' then
  local reply = {}
  for _, due in ipairs(redis.call('ZRANGEBYSCORE', half, '-inf', at(0), 'LIMIT', 0, ARGV[3])) do
    local payload = redis.call('HGET', items, due)
    if payload then
      redis.call('ZADD', half, at(ARGV[4]), due)
      reply[#reply + 1] = due
      reply[#reply + 1] = payload
      reply[#reply + 1] = redis.call('HGET', asked, due) or '0'
    else
      redis.call('ZREM', half, due)
    end
  end
  return reply
elseif verb == 'asked' then
  if redis.call('HEXISTS', items, id) == 0 then
    return 0
  end
  redis.call('ZADD', half, at(ARGV[4]), id)
  return redis.call('HINCRBY', asked, id, 1)
end
local resolved_key = 'cw:resolved:' .. ARGV[1] .. ':' .. id
local known = redis.call('GET', resolved_key)
if known then
  return known
end
local payload = redis.call('HGET', items, id)
if not payload then
  return ''
end
drop(ARGV[1], items, id)
redis.call('HDEL', asked, id)
redis.call('ZREM', half, id)
redis.call('SET', resolved_key, ARGV[4], 'PX', 86400000)
if ARGV[6] ~= '' then
  local queue = 'cw:later:' .. ARGV[1]
  keep(ARGV[1], queue .. ':items', id, ARGV[5] ~= '' and ARGV[5] or payload)
  redis.call('ZADD', queue, at(ARGV[6]), id)
end
return ARGV[4]
