-- Make an entry of each record of a partition that has no groups: each call copies some entries, and once all are copied
-- they replace the old ones. ARGV: topic, partition, records to copy at most in this call.
-- Reply: 1 if there is more to do. Appending, reading and trimming may continue between two calls.
local topic, p, left = ARGV[1], ARGV[2], tonumber(ARGV[3])
local call, format = redis.call, string.format
local topic_key = 'cw:topic:' .. topic
local from, to = 'cw:log:' .. topic .. ':' .. p, 'cw:unpacked:' .. topic .. ':' .. p
local bounds = call('HMGET', topic_key, p .. ':first', p .. ':end', p .. ':packed')
local first, past, packed = tonumber(bounds[1] or '0'), tonumber(bounds[2] or '0'), tonumber(bounds[3] or '0')
if packed <= first then
  call('DEL', to)
  call('HDEL', topic_key, p .. ':packed')
  return 0
end

--@ varint

local newest = call('XREVRANGE', to, '+', '-', 'COUNT', 1)[1]
local offset = newest and math.max(first, tonumber(string.match(newest[1], '^%d+')) + 1) or first

local function unpacked(last, fields)
  local time, stamp, tag, key, lengths, values = fields[2], fields[4], fields[6], fields[8], fields[10], fields[12]
  local number, of_sequence = string.match(stamp, '^(%d+)(.*)$')
  local _, count = string.gsub(lengths, '%d+', '')
  local here, at = last - count + 1, 1
  number = tonumber(number)
  for length in string.gmatch(lengths, '%d+') do
    if here >= offset then
      local value = string.sub(values, at, at + length - 1)
      if tag ~= '' then
        value = value .. tag .. varint(number)
      end
      call('XADD', to, format('%.0f-1', here), 't', time, 's', format('%.0f', number) .. of_sequence, 'k', key, 'v', value)
      left = left - 1
    end
    here, at, number = here + 1, at + length, number + 1
  end
end

local function unpacked_keyed(last, fields)
  local time, key_lengths, keys, lengths, values = fields[2], fields[4], fields[6], fields[8], fields[10]
  local _, count = string.gsub(lengths, '%d+', '')
  local here, at, key_at, next_key = last - count + 1, 1, 1, string.gmatch(key_lengths, '%d+')
  for length in string.gmatch(lengths, '%d+') do
    local key_length = next_key()
    if here >= offset then
      local key, value = string.sub(keys, key_at, key_at + key_length - 1), string.sub(values, at, at + length - 1)
      call('XADD', to, format('%.0f-1', here), 't', time, 'k', key, 'v', value)
      left = left - 1
    end
    here, at, key_at = here + 1, at + length, key_at + key_length
  end
end

while left > 0 and offset < past do
  for _, entry in ipairs(call('XRANGE', from, format('%.0f-0', offset), '+', 'COUNT', 64)) do
    local last, kind = string.match(entry[1], '^(%d+)-(%d)')
    last = tonumber(last)
    if kind == '2' and entry[2][3] == 'c' then
      unpacked_keyed(last, entry[2])
    elseif kind == '2' then
      unpacked(last, entry[2])
    else
      call('XADD', to, entry[1], unpack(entry[2]))
      left = left - 1
    end
    offset = last + 1
    if left <= 0 then
      break
    end
  end
end
if offset < past then
  return 1
end
call('XTRIM', to, 'MINID', format('%.0f-1', first))
call('RENAME', to, from)
call('HDEL', topic_key, p .. ':packed')
return 0
