-- End or change what a consumer was given, if nobody was given it since.
-- ARGV: topic, partition, group, offset, attempt, then
--       'done' | 'later', milliseconds | 'unseen' | 'bury', queue, id, payload (due now on that queue).
-- Reply: 'D' done, 'G' it was settled before, 'S' it was given out again since.
local place = ARGV[1] .. ':' .. ARGV[2]
local stream, group, id, verb = 'cw:log:' .. place, ARGV[3], ARGV[4] .. '-1', ARGV[6]
local due_key, order_key = 'cw:due:' .. place .. ':' .. group, 'cw:order:' .. place .. ':' .. group
local settled_key = 'cw:settled:' .. place .. ':' .. group .. ':' .. ARGV[4]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local pending = redis.pcall('XPENDING', stream, group, id, id, 1)
if pending.err or #pending == 0 then
  local by = redis.call('GET', settled_key)
  return by and by ~= ARGV[5] and 'S' or 'G'
end
if pending[1][4] ~= tonumber(ARGV[5]) then
  return 'S'
end
if verb == 'later' then
  redis.call('ZADD', due_key, string.format('%.0f', now + tonumber(ARGV[7])), id)
  return 'D'
end
if verb == 'unseen' then
  redis.call('XCLAIM', stream, group, pending[1][2], 0, id, 'RETRYCOUNT', pending[1][4] - 1, 'JUSTID')
  redis.call('ZADD', due_key, string.format('%.0f', now), id)
  return 'D'
end
if verb == 'bury' then
  local queue = 'cw:later:' .. ARGV[7]
  if redis.call('HSETNX', queue .. ':items', ARGV[8], ARGV[9]) == 1 then
    redis.call('ZADD', queue, string.format('%.0f', now), ARGV[8])
  end
end
redis.call('XACK', stream, group, id)
redis.call('ZREM', due_key, id)
redis.call('HDEL', order_key, id)
if pending[1][4] > 1 then
  -- Whom it was given before may still answer.
  redis.call('SET', settled_key, ARGV[5], 'PX', 3600000)
end
return 'D'
