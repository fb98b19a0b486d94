-- A token bucket shared by all processes; bus/budget.py says how it counts.
-- ARGV: budget, then 'take', cost, capacity, per second | 'block', seconds | 'correct', used, capacity.
-- Reply: seconds to wait, as text.
local key, verb = 'cw:budget:' .. ARGV[1], ARGV[2]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local kept = redis.call('HMGET', key, 'tokens', 'at', 'rate', 'blocked')
local tokens, at, rate = tonumber(kept[1] or ''), tonumber(kept[2] or ''), tonumber(kept[3] or '0')
local blocked = tonumber(kept[4] or '0')
local wait = 0
-- After the clock was set back, nothing would be refilled, and a block would last, until it has caught up.
local is_set_back = at ~= nil and now < at
if is_set_back then
  blocked = math.max(0, blocked - (at - now))
end

local function number(value)
  return string.format('%.17g', value)
end

local function refill(capacity)
  if tokens then
    tokens = math.min(capacity, tokens + math.max(0, now - at) * rate)
  else
    tokens = capacity
  end
  at = now
end

if verb == 'block' then
  blocked = math.max(blocked, now + tonumber(ARGV[3]))
elseif verb == 'correct' then
  local capacity = tonumber(ARGV[4])
  refill(capacity)
  tokens = math.min(tokens, capacity - tonumber(ARGV[3]))
else
  local cost, capacity = tonumber(ARGV[3]), tonumber(ARGV[4])
  refill(capacity)
  rate = tonumber(ARGV[5])
  local missing = math.min(cost, capacity) - tokens
  if now < blocked then
    wait = blocked - now
  elseif missing > 0 then
    wait = missing / rate
  else
    tokens = tokens - cost
  end
end

-- Usually nothing is written if nothing was taken: the refill can be computed again from the older state.
if wait == 0 or is_set_back or rate ~= tonumber(kept[3] or '0') then
  redis.call('HSET', key, 'blocked', number(blocked), 'rate', number(rate))
  if tokens then
    redis.call('HSET', key, 'tokens', number(tokens), 'at', number(at))
  end
  redis.call('EXPIRE', key, 7 * 86400)
end
return number(wait)
