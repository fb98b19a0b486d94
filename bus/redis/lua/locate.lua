-- Where to start reading to find a number of a sequence. ARGV: topic, sequence name, number.
-- Reply: {partition, offset} or nothing.
local topic, number = ARGV[1], tonumber(ARGV[3])
local known = redis.call('HMGET', 'cw:seq:' .. ARGV[2], 'last', 'id')
if not known[1] or number < 1 or number > tonumber(known[1]) then
  return nil
end
local marks = 'cw:marks:' .. known[2] .. ':' .. topic
local found = redis.call('ZREVRANGEBYSCORE', marks, ARGV[3], '-inf', 'LIMIT', 0, 1)[1]
if not found then
  return nil
end
local partition, offset = string.match(found, '^(%d+):(%d+)$')
offset = tonumber(offset)
local first = tonumber(redis.call('HGET', 'cw:topic:' .. topic, partition .. ':first') or '0')
if offset >= first then
  return { tonumber(partition), offset }
end
-- The mark was trimmed. The record may still exist, less than the distance of two marks after it.
local stream = 'cw:log:' .. topic .. ':' .. partition
local suffix = '%.' .. known[2] .. '$'
local past = offset + 2048
while first < past do
  local entries = redis.call('XRANGE', stream, string.format('%.0f-0', first), '+', 'COUNT', 128)
  if #entries == 0 then
    return nil
  end
  for _, entry in ipairs(entries) do
    local last, kind = string.match(entry[1], '^(%d+)-(%d)')
    last = tonumber(last)
    if entry[2][3] == 's' and string.find(entry[2][4], suffix) then
      local has = tonumber(string.match(entry[2][4], '^%d+'))
      if kind == '2' then
        -- Of a pack, which begins with this number, the first records may have been trimmed.
        local _, count = string.gsub(entry[2][10], '%d+', '')
        local start = last - count + 1
        has = has + math.max(0, first - start)
        first = math.max(first, start)
      else
        first = last
      end
      if has > number then
        return nil
      end
      return { tonumber(partition), first }
    end
    first = last + 1
  end
end
return nil
