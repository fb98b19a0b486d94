-- Reply: per role its name, epoch, holder ('' = none now) and a list of standbys.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local found = {}
for _, name in ipairs(redis.call('HKEYS', 'cw:roles')) do
  local kept = redis.call('HMGET', 'cw:role:' .. name, 'epoch', 'holder', 'until')
  local holder = tonumber(kept[3] or '0') > now and kept[2] or ''
  local standbys = redis.call('ZRANGEBYSCORE', 'cw:standbys:' .. name, string.format('%.0f', now), '+inf')
  found[#found + 1] = { name, kept[1] or '0', holder, standbys }
end
return found
