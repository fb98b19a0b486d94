-- Every script begins with this. KEYS: none, or the key of a role and the epoch under which the caller writes: what an
-- earlier holder of the role still sends changes nothing (see bus/roles.py).
if KEYS[1] then
  local epoch = redis.call('HGET', KEYS[1], 'epoch')
  if epoch ~= KEYS[2] then
    return redis.error_reply('FENCED ' .. KEYS[1] .. ' ' .. KEYS[2] .. ' ' .. (epoch or '0'))
  end
end
