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

-- Whether the holder still has its lease, which is corrected where the time says nothing about the holder: the clock was
-- put back, or a standby, which looks twenty times within a lease, has not looked for half of it. Then Redis did not run,
-- or its clock was put forward, and the holder gets the time of two renewals.
local function is_kept(expiry, lease, looked, own_lease)
  local left = expiry - now
  local pause = looked and now + 2 * own_lease - looked or 0
  if left > lease then
    left = lease
  elseif left <= 0 and pause > own_lease / 2 then
    left = 0.4 * lease
  else
    return left > 0
  end
  redis.call('HSET', role, 'until', after(left))
  return true
end

if what == 'take' then
  local kept = redis.call('HMGET', role, 'epoch', 'holder', 'seat', 'until', 'lease')
  local own_lease = tonumber(ARGV[5])
  local is_mine = kept[2] == ARGV[3] or (ARGV[4] ~= '' and kept[3] == ARGV[4])
  if kept[1] and kept[2] ~= '' and not is_mine then
    local looked = tonumber(redis.call('ZMSCORE', standbys, ARGV[3])[1])
    redis.call('ZADD', standbys, after(2 * own_lease), ARGV[3])
    if is_kept(tonumber(kept[4]), tonumber(kept[5] or ARGV[5]), looked, own_lease) then
      return { kept[1], 0 }
    end
  end
  local epoch = string.format('%.0f', tonumber(kept[1] or '0') + 1)
  redis.call('HSET', role, 'epoch', epoch, 'holder', ARGV[3], 'seat', ARGV[4], 'until', after(ARGV[5]), 'lease', ARGV[5])
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
