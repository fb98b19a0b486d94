-- Drop old records behind every hold and every group, and groups that nobody used for long.
-- ARGV: topic, milliseconds to keep ('inf' = by age nothing goes), bytes to keep ('inf'), group expiry in
--       milliseconds, records to drop at most in this call.
-- Reply: {dropped, 1 when there may be more, expired group, ...}.
local topic, left = ARGV[1], tonumber(ARGV[5])
local partitions = tonumber(redis.call('HGET', 'cw:topics', topic) or '0')
local topic_key, groups_key = 'cw:topic:' .. topic, 'cw:groups:' .. topic
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local expiry = tonumber(ARGV[4])
local reply = { 0, 0 }
local CHUNK = 64

local function named(flat)
  local map = {}
  for i = 1, #flat, 2 do
    map[flat[i]] = flat[i + 1]
  end
  return map
end

local function groups_of(stream)
  local found = redis.pcall('XINFO', 'GROUPS', stream)
  return found.err and {} or found
end

local function is_expired(group)
  local used = redis.call('HGET', groups_key, group)
  if not used then
    redis.call('HSET', groups_key, group, string.format('%.0f', now))
    return false
  end
  return now - tonumber(used) > expiry
end

local function offset_of(id)
  return tonumber(string.match(id, '^%d+'))
end

local logs = {}
local expired = {}
for p = 0, partitions - 1 do
  local stream = 'cw:log:' .. topic .. ':' .. p
  local bounds = redis.call('HMGET', topic_key, p .. ':first', p .. ':end', p .. ':size')
  local log = {
    p = p, stream = stream, first = tonumber(bounds[1] or '0'), limit = tonumber(bounds[2] or '0'),
    size = tonumber(bounds[3] or '0'), dropped = 0,
  }
  for _, flat in ipairs(groups_of(stream)) do
    local group = named(flat)
    local name = group['name']
    if expired[name] == nil then
      expired[name] = is_expired(name)
    end
    if expired[name] then
      redis.call('XGROUP', 'DESTROY', stream, name)
    else
      local last = group['last-delivered-id']
      local needs = offset_of(last)
      if string.sub(last, -2) ~= '-0' then
        needs = needs + 1
      end
      if group['pending'] > 0 then
        needs = math.min(needs, offset_of(redis.call('XPENDING', stream, name)[2]))
      end
      log.limit = math.min(log.limit, needs)
      for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, name)) do
        local c = named(consumer)
        if c['pending'] == 0 and c['idle'] > expiry then
          redis.call('XGROUP', 'DELCONSUMER', stream, name, c['name'])
        end
      end
    end
  end
  logs[p] = log
end
for name, is in pairs(expired) do
  if is then
    redis.call('HDEL', groups_key, name)
    reply[#reply + 1] = name
  end
end

local holds = redis.call('HGETALL', 'cw:holds:' .. topic)
for i = 1, #holds, 2 do
  local log = logs[tonumber(string.match(holds[i], '^%d+'))]
  if log then
    log.limit = math.min(log.limit, tonumber(holds[i + 1]))
  end
end

local function fields_of(entry)
  local time, size = 0, 32
  for i = 1, #entry[2], 2 do
    local name, value = entry[2][i], entry[2][i + 1]
    if name == 't' then
      time = tonumber(value)
    elseif name ~= 's' then
      size = size + #value
    end
  end
  return time, size
end

local total = tonumber(redis.call('HGET', topic_key, 'size') or '0')

local function drop(log, size)
  log.first = log.first + 1
  log.size = log.size - size
  log.dropped = log.dropped + 1
  total = total - size
  left = left - 1
end

if ARGV[2] ~= 'inf' then
  local oldest = now - tonumber(ARGV[2])
  for p = 0, partitions - 1 do
    local log = logs[p]
    local going = log.first < log.limit
    while going and left > 0 do
      local entries = redis.call(
        'XRANGE', log.stream, string.format('%.0f-0', log.first), '+', 'COUNT', CHUNK)
      going = #entries > 0
      for _, entry in ipairs(entries) do
        local time, size = fields_of(entry)
        if log.first >= log.limit or time >= oldest or left <= 0 then
          going = false
          break
        end
        drop(log, size)
      end
    end
  end
end

if ARGV[3] ~= 'inf' then
  local keep = tonumber(ARGV[3])
  local heads = {}
  while total > keep and left > 0 do
    local oldest, oldest_time
    for p = 0, partitions - 1 do
      local log = logs[p]
      if log.first < log.limit then
        local head = heads[p]
        if not head or head.next > #head.entries then
          head = { next = 1, entries = redis.call(
            'XRANGE', log.stream, string.format('%.0f-0', log.first), '+', 'COUNT', CHUNK) }
          heads[p] = head
        end
        local time = head.entries[head.next] and fields_of(head.entries[head.next])
        if time and (not oldest or time < oldest_time) then
          oldest, oldest_time = p, time
        end
      end
    end
    if not oldest then
      break
    end
    local head = heads[oldest]
    local _, size = fields_of(head.entries[head.next])
    head.next = head.next + 1
    drop(logs[oldest], size)
  end
end

for p = 0, partitions - 1 do
  local log = logs[p]
  if log.dropped > 0 then
    redis.call('XTRIM', log.stream, 'MINID', string.format('%.0f-1', log.first))
    redis.call(
      'HSET', topic_key, p .. ':first', string.format('%.0f', log.first), p .. ':size',
      string.format('%.0f', log.size), 'size', string.format('%.0f', total))
    reply[1] = reply[1] + log.dropped
  end
end
if left <= 0 then
  reply[2] = 1
end
return reply
