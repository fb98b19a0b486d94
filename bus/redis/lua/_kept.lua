-- Messages kept outside the log until they are published or rolled back; their bytes are counted by queue.
local function keep(queue, items, id, payload)
  local is_new = redis.call('HSETNX', items, id, payload) == 1
  if is_new then
    redis.call('INCRBY', 'cw:kept:' .. queue, #payload)
  end
  return is_new
end

local function drop(queue, items, id)
  local size = redis.call('HSTRLEN', items, id)
  if redis.call('HDEL', items, id) == 0 then
    return 0
  end
  redis.call('DECRBY', 'cw:kept:' .. queue, size)
  return 1
end

local function kept_bytes(queue)
  return tonumber(redis.call('GET', 'cw:kept:' .. queue) or '0')
end
