-- Every script begins with this. KEYS: none, or the key of a role and 'cw:epoch:' with the epoch under which the caller
-- writes: an earlier holder of the role can no longer change anything (see bus/roles.py). No key has the latter name, but a user
-- with access only to cw:* can send it.
if KEYS[1] then
  local epoch = redis.call('HGET', KEYS[1], 'epoch') or '0'
  if 'cw:epoch:' .. epoch ~= KEYS[2] then
    return redis.error_reply('FENCED ' .. KEYS[1] .. ' ' .. KEYS[2] .. ' ' .. epoch)
  end
end
