-- Give records of one partition to a consumer of a group, each hidden from the others for a time of its own.
-- ARGV: topic, partition, group, consumer, records at most, milliseconds to hide, milliseconds to hide those that were
--       given out without such a time, '1' = in order within each message group, records to look at for that.
-- Reply: {'N'} no such group; or {'D', milliseconds until the next hidden one is due ('' = none), records that were
--        pending and are no more, {attempt, ...}, {entry, ...}}.
local topic, partition, group, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local most, hide = tonumber(ARGV[5]), tonumber(ARGV[6])
local place = topic .. ':' .. partition
local stream = 'cw:log:' .. place
local due_key, order_key = 'cw:due:' .. place .. ':' .. group, 'cw:order:' .. place .. ':' .. group

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function number(value)
  return string.format('%.0f', value)
end

local used = redis.call('HGET', 'cw:groups:' .. topic, group)
if not used then
  return { 'N' }
end
local waiting = redis.pcall('XPENDING', stream, group)
if waiting.err then
  return { 'N' }
end
if now - tonumber(used) > 60000 then
  redis.call('HSET', 'cw:groups:' .. topic, group, number(now))
end

-- What is pending and has no time was given out by others of the group, or the times were lost.
if tonumber(waiting[1]) > redis.call('ZCARD', due_key) then
  local from = '-'
  while true do
    local found = redis.call('XPENDING', stream, group, from, '+', 500)
    for _, entry in ipairs(found) do
      redis.call('ZADD', due_key, 'NX', number(now + math.max(0, tonumber(ARGV[7]) - entry[3])), entry[1])
      from = '(' .. entry[1]
    end
    if #found < 500 then
      break
    end
  end
end

local attempts, entries, lost = {}, {}, 0
local until_then = number(now + hide)

local function give(entry, attempt)
  attempts[#attempts + 1] = attempt
  entries[#entries + 1] = entry
  redis.call('ZADD', due_key, until_then, entry[1])
end

local function forget(id)
  lost = lost + redis.call('XACK', stream, group, id)
  redis.call('ZREM', due_key, id)
  redis.call('HDEL', order_key, id)
end

local function give_again(id)
  local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
  if not entry then
    forget(id)
    return false
  end
  give(entry, redis.call('XPENDING', stream, group, id, id, 1)[1][4])
  return true
end

local function read(count)
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  return reply and reply[1][2] or {}
end

-- The message group of an entry: what its sender named, else its key, else one for all without.
local function message_group(entry)
  local key, headers
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'k' then
      key = entry[2][i + 1]
    elseif entry[2][i] == 'h' then
      headers = entry[2][i + 1]
    end
  end
  if headers and string.find(headers, 'EXTEND_UNIQ_INFO', 1, true) then
    local is_sound, name = pcall(function()
      return cjson.decode(cjson.decode(headers)['EXTEND_UNIQ_INFO'])['group']
    end)
    if is_sound and type(name) == 'string' then
      return 'g' .. name
    end
  end
  return key and 'k' .. key or ''
end

if ARGV[8] ~= '1' then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due_key, '-inf', number(now), 'LIMIT', 0, most)) do
    give_again(id)
  end
  if #entries < most then
    for _, entry in ipairs(read(most - #entries)) do
      give(entry, 1)
    end
  end
else
  local look = tonumber(ARGV[9])
  local pending = redis.call('XPENDING', stream, group, '-', '+', look)
  local blocked, again = {}, {}
  local ids = {}
  for i, entry in ipairs(pending) do
    ids[i] = entry[1]
  end
  local names = #ids > 0 and redis.call('HMGET', order_key, unpack(ids)) or {}
  local times = #ids > 0 and redis.call('ZMSCORE', due_key, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    local name = names[i]
    if not name then
      local entry = redis.call('XRANGE', stream, id, id)[1]
      name = entry and message_group(entry) or ''
      redis.call('HSET', order_key, id, name)
    end
    if blocked[name] then
      -- Behind one that is not settled yet.
      name = nil
    elseif tonumber(times[i] or '0') > now and not again[name] then
      blocked[name] = true
    elseif #entries == most then
      blocked[name] = true
      redis.call('ZADD', due_key, 0, id)
    elseif give_again(id) and pending[i][4] > 0 then
      -- From the first one that is not settled on, in order.
      again[name] = true
    end
  end
  local seen = #ids
  while #entries < most and seen < look do
    local found = read(math.min(most - #entries, look - seen))
    if #found == 0 then
      break
    end
    for _, entry in ipairs(found) do
      seen = seen + 1
      local name = message_group(entry)
      redis.call('HSET', order_key, entry[1], name)
      if blocked[name] then
        -- Read, but given to nobody yet.
        redis.call('XCLAIM', stream, group, consumer, 0, entry[1], 'RETRYCOUNT', 0, 'JUSTID')
        redis.call('ZADD', due_key, 0, entry[1])
      else
        give(entry, 1)
      end
    end
  end
  redis.call('PEXPIRE', order_key, 30 * 86400000)
end

if #entries > 0 then
  redis.call('PEXPIRE', due_key, 30 * 86400000)
end
local following = redis.call('ZRANGEBYSCORE', due_key, '(' .. number(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local left = following[2] and number(tonumber(following[2]) - now) or ''
return { 'D', left, lost, attempts, entries }
