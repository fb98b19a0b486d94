-- End or change deliveries, except those that were delivered to another consumer since.
-- ARGV: 'done', '', '', '' | 'later', milliseconds, '', '' | 'unseen', '', '', ''
--       | 'bury', queue, id, payload (due now on that queue),
--       then per delivery: topic, group, partition, offset, attempt, consumer that answers ('' = not known),
--       life of the store to which the record belongs ('' = not known).
-- Reply per delivery: 'D' done, 'G' it was settled before, 'S' it was delivered again since, 'U' the record does not exist,
--       'L' the store has lost the record and replaced it with another one.
--@ oom
local verb = ARGV[1]
--@ clock
--@ kept
--@ life

local function settle(topic, group, partition, offset, attempt, consumer, life)
  if life ~= '' and life ~= life_of(topic, partition, offset) then
    return 'L'
  end
  local place = topic .. ':' .. partition
  local stream, own, id = 'cw:log:' .. place, place .. ':' .. group, offset .. '-1'
  local due_key, order_key, settled_key = 'cw:due:' .. own, 'cw:order:' .. own, 'cw:settled:' .. own .. ':' .. offset

  local pending = redis.pcall('XPENDING', stream, group, id, id, 1)
  if pending.err or #pending == 0 then
    local by = redis.call('GET', settled_key)
    if by and by ~= attempt then
      return 'S'
    end
    local past = redis.call('HGET', 'cw:topic:' .. topic, partition .. ':end')
    return tonumber(offset) < tonumber(past or '0') and 'G' or 'U'
  end
  local is_ordered = redis.call('HEXISTS', order_key, id) == 1
  if pending[1][4] ~= tonumber(attempt) and not (is_ordered and pending[1][2] == consumer) then
    return 'S'
  end
  if verb == 'later' then
    redis.call('ZADD', due_key, number(now + tonumber(ARGV[2])), id)
    return 'D'
  end
  if verb == 'unseen' then
    redis.call('XCLAIM', stream, group, pending[1][2], 0, id, 'RETRYCOUNT', pending[1][4] - 1, 'JUSTID')
    redis.call('ZADD', due_key, number(now), id)
    return 'D'
  end
  if verb == 'bury' then
    local queue = 'cw:later:' .. ARGV[2]
    if keep(ARGV[2], queue .. ':items', ARGV[3], ARGV[4]) then
      redis.call('ZADD', queue, number(now), ARGV[3])
    end
  end
  redis.call('XACK', stream, group, id)
  redis.call('ZREM', due_key, id)
  redis.call('HDEL', order_key, id)
  if pending[1][4] > 1 and not is_ordered then
    -- The previous consumer may still answer; in ordered mode it would otherwise wait for an acceptance without limit.
    redis.call('SET', settled_key, attempt, 'PX', 3600000)
  end
  return 'D'
end

local reply = {}
for i = 5, #ARGV, 7 do
  reply[#reply + 1] = settle(unpack(ARGV, i, i + 6))
end
return reply
