-- The terms of a role: see bus/roles.py.
-- ARGV: 'take', role, holder, seat, milliseconds of the lease;
--       'keep', role, epoch, milliseconds; 'leave', role, epoch; 'withdraw', role, holder.
-- Reply: to 'take' the epoch, and 1 if it is the caller's; to 'keep' and 'leave' 1, or 0 once the term is over.
--@ oom
local what, name = ARGV[1], ARGV[2]
local role, standbys = 'cw:role:' .. name, 'cw:standbys:' .. name
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function after(milliseconds)
  return string.format('%.0f', now + tonumber(milliseconds))
end

if what == 'take' then
  local kept = redis.call('HMGET', role, 'epoch', 'holder', 'seat', 'until')
  local epoch, is_mine = tonumber(kept[1] or '0'), kept[2] == ARGV[3] or (ARGV[4] ~= '' and kept[3] == ARGV[4])
  if kept[1] and not is_mine and tonumber(kept[4]) > now then
    redis.call('ZADD', standbys, after(2 * tonumber(ARGV[5])), ARGV[3])
    return { kept[1], 0 }
  end
  epoch = string.format('%.0f', epoch + 1)
  redis.call('HSET', role, 'epoch', epoch, 'holder', ARGV[3], 'seat', ARGV[4], 'until', after(ARGV[5]))
  redis.call('ZREM', standbys, ARGV[3])
  redis.call('HSETNX', 'cw:roles', name, '')
  return { epoch, 1 }
elseif what == 'withdraw' then
  redis.call('ZREM', standbys, ARGV[3])
  return 1
end
if redis.call('HGET', role, 'epoch') ~= ARGV[3] then
  return 0
end
if what == 'keep' then
  redis.call('HSET', role, 'until', after(ARGV[4]))
else
  redis.call('HSET', role, 'holder', '', 'seat', '', 'until', '0')
end
return 1
