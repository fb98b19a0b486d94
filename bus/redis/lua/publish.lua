-- Append records to partitions of one topic, all or nothing.
--
-- ARGV: topic, partitions the writer assumes, limit in bytes, lease ('' = none, else '=' .. name),
--       writer, call number of that writer, once key ('' = none, '*' and lengths = several keys, concatenated in the
--       content, and, after '=' and their lengths, their contents after them), once content, once milliseconds,
--       seconds to remember the call, '1' = at maxmemory too,
--       topics at most, seconds to keep an unused sequence, names of a registry at most, '1' = further names are refused,
--       '1' = only as the call after the writer's last one,
--       then per partition: partition, number of records, then per record a word of flags and what they announce:
--       s = sequence name, count, tag, context tag; h = headers; k = key; and always the value;
--       or * = neighbouring records, one number each: sequence name, tag, key, how many, the lengths of their values
--       separated by spaces, the concatenated values;
--       or + = neighbouring records that have only keys: how many, the lengths of their keys, the concatenated keys,
--       the lengths of their values, the values.
--       Both become one entry, a pack, except in a topic with groups, because Redis counts entries.
-- Reply: {'P', partition, first offset, ...}, or nothing was written and {'N', partitions of the topic}, {'L'} no lease,
--        {'F', bytes} full, {'T', topics} too many topics, {'M', names} too many names, {'K', content} known by that name, {'D', place, ...} of known names among several, {'S'} stale,
--        {'G', number} of the writer's last call here, if calls are missing.
--@ append
local argv = ARGV
local topic = argv[1]
local writer_key = 'cw:writer:' .. argv[5]

-- A call that is repeated after a lost connection gets the result of its first run. A delayed call that its writer gave up
-- long ago changes nothing.
local done = call('GET', writer_key)
if done then
  local number, result = string.match(done, '^(%d+) (.*)$')
  if number == argv[6] then
    local reply = { 'P' }
    for word in string.gmatch(result, '%d+') do
      reply[#reply + 1] = word
    end
    return reply
  end
  if tonumber(number) > tonumber(argv[6]) then
    return { 'S' }
  end
end

if argv[4] ~= '' and call('HEXISTS', 'cw:leases', string.sub(argv[4], 2)) == 0 then
  return { 'L' }
end
if argv[16] == '1' then
  local last = tonumber(done and string.match(done, '^%d+') or '0')
  if last ~= tonumber(argv[6]) - 1 then
    return { 'G', string.format('%.0f', last) }
  end
end
local several, contents
if string.sub(argv[7], 1, 1) == '*' then
  several, contents = {}, {}
  local known, at = { 'D' }, 1
  local key_lengths, lengths = string.match(argv[7], '^([^=]*)=?(.*)$')
  for length in string.gmatch(key_lengths, '%d+') do
    several[#several + 1] = string.sub(argv[8], at, at + length - 1)
    at = at + length
    if call('EXISTS', several[#several]) == 1 then
      known[#known + 1] = #several - 1
    end
  end
  for length in string.gmatch(lengths, '%d+') do
    contents[#contents + 1] = string.sub(argv[8], at, at + length - 1)
    at = at + length
  end
  if #known > 1 then
    return known
  end
elseif argv[7] ~= '' then
  local known = call('GET', argv[7])
  if known then
    return { 'K', known }
  end
end

local registry = several and several[1] or argv[7]
registry = registry ~= '' and string.match(registry, '^cw:once:([^:]*):')
local clock = call('TIME')
local now = string.format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
if registry and argv[15] == '1' then
  local held = call('ZCOUNT', 'cw:names:' .. registry, '(' .. now, '+inf')
  if held + (several and #several or 1) > tonumber(argv[14]) then
    return { 'M', string.format('%.0f', held) }
  end
end
if argv[11] == '1' then
--@ oom
end
local refusal = refusal_of(argv)
if refusal then
  return refusal
end
local reply = append(argv, now)

-- The names of a registry, by the time at which they expire, so that their number can be bounded.
local function remember(names_of)
  local key, from = 'cw:names:' .. registry, #('cw:once:' .. registry .. ':') + 1
  local until_then = string.format('%.0f', tonumber(now) + tonumber(argv[9]))
  call('ZREMRANGEBYSCORE', key, '-inf', now)
  for _, name in ipairs(names_of) do
    call('ZADD', key, until_then, string.sub(name, from))
  end
  if call('PTTL', key) < tonumber(argv[9]) then
    call('PEXPIRE', key, argv[9])
  end
  local surplus = call('ZCARD', key) - tonumber(argv[14])
  if surplus > 0 then
    local oldest = call('ZPOPMIN', key, surplus)
    for at = 1, #oldest, 2 do
      call('DEL', 'cw:once:' .. registry .. ':' .. oldest[at])
    end
    call('HINCRBY', 'cw:evicted', 'registry ' .. registry, surplus)
  end
end
if several then
  for place, key in ipairs(several) do
    call('SET', key, contents[place] or '', 'PX', argv[9])
  end
  remember(several)
elseif argv[7] ~= '' then
  call('SET', argv[7], argv[8], 'PX', argv[9])
  remember({ argv[7] })
end
call('SET', writer_key, argv[6] .. ' ' .. table.concat(reply, ' ', 2), 'EX', argv[10])
return reply
