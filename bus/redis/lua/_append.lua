-- Appends records of one topic. `argv`: as in `publish.lua`.
local call, format = redis.call, string.format

-- Why these records cannot be appended, as the reply to the caller; nil if they can.
local function refusal_of(argv)
  local partitions = call('HGET', 'cw:topics', argv[1])
  if not partitions then
    local topics = call('HLEN', 'cw:topics')
    if topics >= tonumber(argv[12]) then
      return { 'T', string.format('%.0f', topics) }
    end
  elseif partitions ~= argv[2] then
    return { 'N', partitions }
  end
  local size = tonumber(call('HGET', 'cw:topic:' .. argv[1], 'size') or '0')
  if size >= tonumber(argv[3]) then
    return { 'F', string.format('%.0f', size) }
  end
end

-- Appends them, at `now` in milliseconds; the reply to the caller.
local function append(argv, now)
  local topic = argv[1]
  local topic_key = 'cw:topic:' .. topic
  call('HSETNX', 'cw:topics', topic, argv[2])
  local kept = call('HMGET', topic_key, 'size', 'plain')
  local size = tonumber(kept[1] or '0')
  -- Groups that were made before packs existed are not recorded.
  local is_plain = kept[2] or call('HLEN', 'cw:groups:' .. topic) > 0

  local updates = {}
  local reply = { 'P' }
  local names = {}

  -- The life of the store: `life.lua` begins one when the server starts; a store that was emptied meanwhile gets one here.
  local life = call('GET', 'cw:life')
  if not life then
    life = string.sub(redis.sha1hex(argv[5] .. ' ' .. argv[6] .. ' ' .. now), 1, 12)
    call('SET', 'cw:life', life)
  end
  life = string.sub(life, 1, 12)
  -- The most lives whose beginnings a partition remembers.
  local LIVES = 64

  local function lives_of(before, offset)
    local found, count = life .. '@' .. string.format('%.0f', offset), 1
    if not before and offset > 0 then
      before = '-@0'
    end
    for word in string.gmatch(before or '', '%S+') do
      if count < LIVES then
        found, count = found .. ' ' .. word, count + 1
      end
    end
    return found
  end

--@ varint

  local function stamped(value, number, tag, context_tag)
    if tag ~= '' then
      value = value .. tag .. varint(number)
    end
    if context_tag ~= '' then
      local digits = string.format('%.0f', number)
      local entry = '\10\8sequence\18' .. varint(#digits) .. digits
      value = value .. context_tag .. varint(#entry) .. entry
    end
    return value
  end

  -- Bytes of the varints of `count` numbers from `first` on.
  local function varint_bytes(first, count)
    local bytes, width, limit, past = 0, 1, 128, first + count
    while first < past do
      while first >= limit do
        width, limit = width + 1, limit * 128
      end
      local upto = math.min(past, limit)
      bytes = bytes + (upto - first) * width
      first = upto
    end
    return bytes
  end

  -- A mark at regular intervals shows `locate` where a number is.
  local MARK_DISTANCE = 2048

  -- `count` records from `offset` on have the numbers from `number` on.
  local function mark(state, number, partition, offset, count)
    if state.mark_partition == partition and offset + count - state.mark_offset <= MARK_DISTANCE then
      return
    end
    state.mark_partition, state.mark_offset = partition, offset
    local key = 'cw:marks:' .. state.id .. ':' .. topic
    call('ZADD', key, string.format('%.0f', number), partition .. ':' .. string.format('%.0f', offset))
    -- Of the marks of trimmed records, only the last one is needed.
    while true do
      local second = call('ZRANGE', key, 1, 1)[1]
      if not second then
        return
      end
      local p, o = string.match(second, '^(%d+):(%d+)$')
      if tonumber(o) >= tonumber(call('HGET', topic_key, p .. ':first') or '0') then
        return
      end
      call('ZREMRANGEBYRANK', key, 0, 0)
    end
  end

  local function sequence_of(name)
    local state = names[name]
    if not state then
      local kept = call('HMGET', 'cw:seq:' .. name, 'last', 'id', 'mark:' .. topic)
      state = { last = tonumber(kept[1] or '0'), id = kept[2] or call('INCR', 'cw:seqids') }
      if kept[3] then
        local p, o = string.match(kept[3], '^(%d+):(%d+)$')
        state.mark_partition, state.mark_offset = p, tonumber(o)
      end
      names[name] = state
    end
    return state
  end

  local function numbered(name, count, partition, offset)
    local state = sequence_of(name)
    local first = state.last + 1
    state.last = state.last + tonumber(count)
    mark(state, first, partition, offset, 1)
    return first, string.format('%.0f.%s', first, state.id)
  end

  local i, n = 17, #argv
  while i <= n do
    local partition, count = argv[i], tonumber(argv[i + 1])
    i = i + 2
    local stream = 'cw:log:' .. topic .. ':' .. partition
    local bounds = call('HMGET', topic_key, partition .. ':end', partition .. ':size', partition .. ':lives')
    local offset = tonumber(bounds[1] or '0')
    local added, has_packed = 0, false
    if not bounds[3] or string.sub(bounds[3], 1, 12) ~= life then
      updates[#updates + 1] = partition .. ':lives'
      updates[#updates + 1] = lives_of(bounds[3], offset)
    end
    reply[#reply + 1] = partition
    reply[#reply + 1] = string.format('%.0f', offset)
    local last = offset + count
    while offset < last do
      local flags = argv[i]
      local id = string.format('%.0f-1', offset)
      if flags == 'k' then
        local key, value = argv[i + 1], argv[i + 2]
        call('XADD', stream, id, 't', now, 'k', key, 'v', value)
        added = added + #key + #value
        i = i + 3
      elseif flags == '-sk' then
        -- Most records of stream topics have this form: a number, its tags, a key.
        local first, stamp = numbered(argv[i + 1], argv[i + 2], partition, offset)
        local key, value = argv[i + 5], stamped(argv[i + 6], first, argv[i + 3], argv[i + 4])
        call('XADD', stream, id, 't', now, 's', stamp, 'k', key, 'v', value)
        added = added + #key + #value
        i = i + 7
      elseif flags == '*' then
        local state, tag, key = sequence_of(argv[i + 1]), argv[i + 2], argv[i + 3]
        local number, lengths, values = tonumber(argv[i + 4]), argv[i + 5], argv[i + 6]
        local first = state.last + 1
        state.last = state.last + number
        added = added + #values + number * #key
        if tag ~= '' then
          added = added + number * #tag + varint_bytes(first, number)
        end
        if is_plain then
          local at = 1
          for length in string.gmatch(lengths, '%d+') do
            local value = string.sub(values, at, at + length - 1)
            at = at + length
            if tag ~= '' then
              value = value .. tag .. varint(first)
            end
            mark(state, first, partition, offset, 1)
            local stamp = format('%.0f.%s', first, state.id)
            call('XADD', stream, format('%.0f-1', offset), 't', now, 's', stamp, 'k', key, 'v', value)
            first, offset = first + 1, offset + 1
          end
          -- The step below is for the last one.
          offset = offset - 1
        else
          mark(state, first, partition, offset, number)
          offset = offset + number - 1
          local stamp = format('%.0f.%s', first, state.id)
          call(
            'XADD', stream, format('%.0f-2', offset), 't', now, 's', stamp, 'g', tag, 'k', key, 'n', lengths, 'v', values)
          has_packed = true
        end
        i = i + 7
      elseif flags == '+' then
        local number, key_lengths, keys = tonumber(argv[i + 1]), argv[i + 2], argv[i + 3]
        local lengths, values = argv[i + 4], argv[i + 5]
        added = added + #keys + #values
        if is_plain then
          local at, key_at, next_key = 1, 1, string.gmatch(key_lengths, '%d+')
          for length in string.gmatch(lengths, '%d+') do
            local key_length = next_key()
            call(
              'XADD', stream, format('%.0f-1', offset), 't', now, 'k', string.sub(keys, key_at, key_at + key_length - 1),
              'v', string.sub(values, at, at + length - 1))
            at, key_at, offset = at + length, key_at + key_length, offset + 1
          end
          offset = offset - 1
        else
          offset = offset + number - 1
          call(
            'XADD', stream, format('%.0f-2', offset), 't', now, 'c', key_lengths, 'k', keys, 'n', lengths, 'v', values)
          has_packed = true
        end
        i = i + 6
      elseif flags == '-' then
        local value = argv[i + 1]
        call('XADD', stream, id, 't', now, 'v', value)
        added = added + #value
        i = i + 2
      else
        local fields = { 't', now }
        local first, stamp
        local tag, context_tag
        i = i + 1
        if string.find(flags, 's', 1, true) then
          first, stamp = numbered(argv[i], argv[i + 1], partition, offset)
          tag, context_tag = argv[i + 2], argv[i + 3]
          fields[3], fields[4] = 's', stamp
          i = i + 4
        end
        if string.find(flags, 'h', 1, true) then
          fields[#fields + 1] = 'h'
          fields[#fields + 1] = argv[i]
          added = added + #argv[i]
          i = i + 1
        end
        if string.find(flags, 'k', 1, true) then
          fields[#fields + 1] = 'k'
          fields[#fields + 1] = argv[i]
          added = added + #argv[i]
          i = i + 1
        end
        local value = argv[i]
        if first then
          value = stamped(value, first, tag, context_tag)
        end
        fields[#fields + 1] = 'v'
        fields[#fields + 1] = value
        added = added + #value
        i = i + 1
        call('XADD', stream, id, unpack(fields))
      end
      offset = offset + 1
    end
    added = added + 32 * count
    size = size + added
    updates[#updates + 1] = partition .. ':end'
    updates[#updates + 1] = string.format('%.0f', offset)
    updates[#updates + 1] = partition .. ':size'
    updates[#updates + 1] = string.format('%.0f', tonumber(bounds[2] or '0') + added)
    if has_packed then
      -- After the newest pack, for `create_group`.
      updates[#updates + 1] = partition .. ':packed'
      updates[#updates + 1] = string.format('%.0f', offset)
    end
  end

  updates[#updates + 1] = 'size'
  updates[#updates + 1] = string.format('%.0f', size)
  call('HSET', topic_key, unpack(updates))
  for name, state in pairs(names) do
    call(
      'HSET', 'cw:seq:' .. name, 'last', string.format('%.0f', state.last), 'id', state.id,
      'mark:' .. topic, state.mark_partition .. ':' .. string.format('%.0f', state.mark_offset)
    )
    call('EXPIRE', 'cw:seq:' .. name, argv[13])
    call('EXPIRE', 'cw:marks:' .. state.id .. ':' .. topic, argv[13])
  end
  return reply
end
