-- Give records of one partition to a consumer of a group, each hidden from the others for its own time.
-- ARGV: topic, partition, group, consumer, milliseconds to hide, milliseconds to hide those that were given out without
--       such a time, '1' = in order within each message group, records at most, bytes after which no more are taken,
--       in order: records that may be given out and unsettled, reader, call number of that reader, seconds to remember the
--       call: one that is repeated after a lost connection gets what its first run gave, which no caller saw.
-- Reply: {'N'} no such group; or {'D', milliseconds until the next hidden one is due ('' = none, '0' = there may be more
--        now), records that are pending no longer, {attempt, ...}, {entry, ...}, lives of the partition}.
--@ oom
local topic, partition, group, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local hide, most, most_bytes, most_held = tonumber(ARGV[5]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local is_ordered = ARGV[7] == '1'
local place = topic .. ':' .. partition
local stream, own = 'cw:log:' .. place, place .. ':' .. group
local due_key, order_key, parked_key = 'cw:due:' .. own, 'cw:order:' .. own, 'cw:parked:' .. own
-- The most entries read at once, because records may be large, and the most examined per call beyond the delivered ones,
-- because other callers wait.
local CHUNK, LOOK = 8, 500

--@ clock

local attempts, entries, bytes, lost = {}, {}, 0, 0
local lives = redis.call('HGET', 'cw:topic:' .. topic, partition .. ':lives')

local given_key, call = 'cw:given:' .. ARGV[11], tonumber(ARGV[12])
local before = redis.call('GET', given_key)
local last_call = before and tonumber(string.match(before, '^%d+')) or 0
if last_call == call then
  for id, attempt in string.gmatch(before, ' (%S+) (%d+)') do
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry then
      attempts[#attempts + 1] = tonumber(attempt)
      entries[#entries + 1] = entry
    end
  end
end
if last_call >= call then
  return { 'D', '0', 0, attempts, entries, lives }
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

-- Pending records without a time were delivered by other programs of the group, or their times were lost.
if tonumber(waiting[1]) > redis.call('ZCARD', due_key) then
  local from = '-'
  while true do
    local found = redis.call('XPENDING', stream, group, from, '+', 500)
    for _, entry in ipairs(found) do
      redis.call('ZADD', due_key, 'NX', number(now + math.max(0, tonumber(ARGV[6]) - entry[3])), entry[1])
      from = '(' .. entry[1]
    end
    if #found < 500 then
      break
    end
  end
end

local until_then = number(now + hide)

local function is_full()
  return #entries >= most or bytes >= most_bytes
end

local function give(entry, attempt)
  attempts[#attempts + 1] = attempt
  entries[#entries + 1] = entry
  for _, part in ipairs(entry[2]) do
    bytes = bytes + #part
  end
  redis.call('ZADD', due_key, until_then, entry[1])
end

local function give_again(id)
  local entry = redis.call('XCLAIM', stream, group, consumer, 0, id)[1]
  if not entry then
    lost = lost + redis.call('XACK', stream, group, id)
    redis.call('ZREM', due_key, id)
    redis.call('HDEL', order_key, id)
    return false
  end
  give(entry, redis.call('XPENDING', stream, group, id, id, 1)[1][4])
  return true
end

local function read()
  local count = math.min(most - #entries, CHUNK)
  local reply = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream, '>')
  return reply and reply[1][2] or {}
end

-- The message group of an entry: the one that its sender named, else its key, else one for all others.
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

local function offset_of(id)
  return tonumber(string.match(id, '^%d+'))
end

local function last_read()
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local named = {}
    for i = 1, #flat, 2 do
      named[flat[i]] = flat[i + 1]
    end
    if named['name'] == group then
      return offset_of(named['last-delivered-id'])
    end
  end
end

-- Message groups of which a record is hidden. Their later records are parked: they are not pending, and only the position
-- of the first one is stored, so that any number of records may follow a hidden one.
local blocked = {}
local parked = redis.call('ZRANGE', parked_key, 0, -1, 'WITHSCORES')
local was_parked = #parked > 0
local is_parked = {}
local is_more = false

-- Read the log once for all parked message groups that are no longer blocked.
local function unpark()
  local from_of, at = {}, nil
  for i = 1, #parked, 2 do
    local name, from = parked[i], tonumber(parked[i + 1])
    if blocked[name] then
      is_parked[name] = true
    else
      from_of[name], at = from, math.min(at or from, from)
    end
  end
  if not at then
    return
  end
  local last, left = last_read(), LOOK
  while at <= last and left > 0 and not is_full() do
    local found = redis.call('XRANGE', stream, number(at) .. '-1', number(last) .. '-1', 'COUNT', CHUNK)
    if #found == 0 then
      at = last + 1
    end
    for _, entry in ipairs(found) do
      if is_full() then
        break
      end
      local offset, name = offset_of(entry[1]), message_group(entry)
      if from_of[name] and offset >= from_of[name] then
        redis.call('XCLAIM', stream, group, consumer, 0, entry[1], 'FORCE', 'RETRYCOUNT', 1, 'JUSTID')
        redis.call('HSET', order_key, entry[1], name)
        give(entry, 1)
      end
      at, left = offset + 1, left - 1
    end
  end
  is_more = at <= last
  for name, from in pairs(from_of) do
    if not is_more then
      redis.call('ZREM', parked_key, name)
    else
      is_parked[name] = true
      if from < at then
        redis.call('ZADD', parked_key, number(at), name)
      end
    end
  end
end

if not is_ordered then
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due_key, '-inf', number(now), 'LIMIT', 0, most)) do
    if not is_full() then
      give_again(id)
    end
  end
  unpark()
  while not is_full() do
    local found = read()
    if #found == 0 then
      break
    end
    for _, entry in ipairs(found) do
      give(entry, 1)
    end
  end
else
  local pending = redis.call('XPENDING', stream, group, '-', '+', most_held)
  local again, ids = {}, {}
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
      -- After one that is not settled yet.
      name = nil
    elseif tonumber(times[i] or '0') > now and not again[name] then
      blocked[name] = true
    elseif is_full() then
      blocked[name] = true
      redis.call('ZADD', due_key, 0, id)
    elseif give_again(id) and pending[i][4] > 0 then
      -- In order, from the first unsettled one on.
      again[name] = true
    end
  end
  unpark()
  local held, left = #ids, LOOK
  local names_parked = redis.call('ZCARD', parked_key)
  while not is_full() and held < most_held and names_parked < most_held do
    local found = left > 0 and read() or {}
    if #found == 0 then
      is_more = is_more or left <= 0
      break
    end
    for _, entry in ipairs(found) do
      local name = message_group(entry)
      left = left - 1
      if blocked[name] or is_parked[name] then
        redis.call('XACK', stream, group, entry[1])
        names_parked = names_parked + redis.call('ZADD', parked_key, 'NX', number(offset_of(entry[1])), name)
        is_parked[name] = true
      else
        held = held + 1
        redis.call('HSET', order_key, entry[1], name)
        give(entry, 1)
      end
    end
  end
  redis.call('PEXPIRE', order_key, 30 * 86400000)
end

if was_parked or next(is_parked) then
  -- No record from there on may be trimmed.
  local first, hold = redis.call('ZRANGE', parked_key, 0, 0, 'WITHSCORES')[2], partition .. ':parked:' .. group
  if first then
    redis.call('HSET', 'cw:holds:' .. topic, hold, number(tonumber(first)))
  else
    redis.call('HDEL', 'cw:holds:' .. topic, hold)
  end
end
if #entries > 0 then
  redis.call('PEXPIRE', due_key, 30 * 86400000)
  local given = { number(call) }
  for i, entry in ipairs(entries) do
    given[#given + 1] = entry[1] .. ' ' .. attempts[i]
  end
  redis.call('SET', given_key, table.concat(given, ' '), 'EX', ARGV[13])
end
local following = redis.call('ZRANGEBYSCORE', due_key, '(' .. number(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local left = is_more and '0' or following[2] and number(tonumber(following[2]) - now) or ''
return { 'D', left, lost, attempts, entries, lives }
