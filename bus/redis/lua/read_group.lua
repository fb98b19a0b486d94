-- Give new records of a topic to a consumer of a group.
-- ARGV: topic, group, consumer, records at most, reader, call number of that reader, seconds to remember the call,
--       then partitions, in the order in which they are read.
-- Reply: {partition, {entry, ...}, its lives, ...}; a call that is repeated after a lost connection gets the result of its first
--        run: no caller saw those records, and they would be delivered again only after their timeout.
--@ oom
local topic, group, consumer, left = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local reader_key, number = 'cw:reader:' .. ARGV[5], ARGV[6]
local reply, ranges = {}, {}

local function stream(partition)
  return 'cw:log:' .. topic .. ':' .. partition
end

local function lives_of(partition)
  return redis.call('HGET', 'cw:topic:' .. topic, partition .. ':lives')
end

local done = redis.call('GET', reader_key)
if done then
  local before = string.match(done, '^%d+')
  if before == number then
    for partition, first, last in string.gmatch(done, ' (%d+) (%S+) (%S+)') do
      reply[#reply + 1] = partition
      reply[#reply + 1] = redis.call('XRANGE', stream(partition), first, last)
      reply[#reply + 1] = lives_of(partition)
    end
    return reply
  elseif tonumber(before) > tonumber(number) then
    -- Its reader gave up this call long ago.
    return reply
  end
end

-- Whether there may be more.
local function read(partition, count)
  local found = redis.pcall('XREADGROUP', 'GROUP', group, consumer, 'COUNT', count, 'STREAMS', stream(partition), '>')
  if not found or found.err then
    return false, found
  end
  local entries = found[1][2]
  left = left - #entries
  reply[#reply + 1] = partition
  reply[#reply + 1] = entries
  reply[#reply + 1] = lives_of(partition)
  ranges[#ranges + 1] = partition .. ' ' .. entries[1][1] .. ' ' .. entries[#entries][1]
  return #entries == count
end

local partitions = #ARGV - 7
local each, rest = math.floor(left / partitions), left % partitions
local busy = {}
for i = 1, partitions do
  local count = each + (i <= rest and 1 or 0)
  local is_busy, failure = count == 0, nil
  if count > 0 then
    is_busy, failure = read(ARGV[7 + i], count)
  end
  if failure then
    return failure
  end
  busy[i] = is_busy
end
-- Busy partitions get the share that quiet ones did not use.
for i = 1, partitions do
  if left > 0 and busy[i] then
    read(ARGV[7 + i], left)
  end
end
if #ranges > 0 then
  redis.call('SET', reader_key, number .. ' ' .. table.concat(ranges, ' '), 'EX', ARGV[7])
end
return reply
