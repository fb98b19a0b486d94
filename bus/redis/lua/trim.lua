-- Drop old records before every hold and every group's position, and groups that have long been unused.
-- ARGV: topic, milliseconds to keep ('inf' = no limit by age), bytes to keep ('inf' = no limit), group expiry in
--       milliseconds, records to drop at most in this call.
-- Reply: {dropped, 1 if there may be more, expired group, ...}.
--@ oom
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
      local own = topic .. ':' .. p .. ':' .. name
      redis.call('DEL', 'cw:due:' .. own, 'cw:order:' .. own, 'cw:parked:' .. own)
      redis.call('HDEL', 'cw:holds:' .. topic, p .. ':parked:' .. name)
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
if #reply > 2 and redis.call('HLEN', groups_key) == 0 then
  redis.call('HDEL', topic_key, 'plain')
end

local holds = redis.call('HGETALL', 'cw:holds:' .. topic)
for i = 1, #holds, 2 do
  local log = logs[tonumber(string.match(holds[i], '^%d+'))]
  if log then
    log.limit = math.min(log.limit, tonumber(holds[i + 1]))
  end
end

local function varint_bytes(number)
  local bytes = 1
  while number > 127 do
    bytes, number = bytes + 1, math.floor(number / 128)
  end
  return bytes
end

-- The records of an entry: its last offset, its time, and the size of all, or in a pack the size of each, by offset.
local function known_of(entry)
  local fields = named(entry[2])
  local last, kind = string.match(entry[1], '^(%d+)-(%d)')
  local found = { last = tonumber(last), time = tonumber(fields['t'] or '0') }
  if kind == '2' then
    local number = tonumber(string.match(fields['s'] or '', '^%d+'))
    local next_key = string.gmatch(fields['c'] or '', '%d+')
    local _, count = string.gsub(fields['n'], '%d+', '')
    local offset = found.last - count + 1
    found.sizes = {}
    for length in string.gmatch(fields['n'], '%d+') do
      local size = 32 + length
      if number then
        size = size + #fields['k']
        if fields['g'] ~= '' then
          size = size + #fields['g'] + varint_bytes(number)
        end
        number = number + 1
      else
        size = size + next_key()
      end
      found.sizes[offset] = size
      offset = offset + 1
    end
  else
    found.size = 32 + #(fields['k'] or '') + #(fields['h'] or '') + #(fields['v'] or '')
  end
  return found
end

-- Time and size of the first record of a log, nothing if it is empty.
local function first_of(log)
  local known = log.known
  if not known or known.last < log.first then
    if not log.entries or log.at > #log.entries then
      log.at, log.entries = 1, redis.call(
        'XRANGE', log.stream, string.format('%.0f-0', log.first), '+', 'COUNT', CHUNK)
    end
    if #log.entries == 0 then
      return nil
    end
    known = known_of(log.entries[log.at])
    log.known, log.at = known, log.at + 1
  end
  return known.time, known.size or known.sizes[log.first]
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
    while log.first < log.limit and left > 0 do
      local time, size = first_of(log)
      if not time or time > oldest then
        break
      end
      drop(log, size)
    end
  end
end

if ARGV[3] ~= 'inf' then
  local keep = tonumber(ARGV[3])
  while total > keep and left > 0 do
    local oldest, oldest_time
    for p = 0, partitions - 1 do
      local log = logs[p]
      local time = log.first < log.limit and first_of(log)
      if time and (not oldest or time < oldest_time) then
        oldest, oldest_time = p, time
      end
    end
    if not oldest then
      break
    end
    local _, size = first_of(logs[oldest])
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
