-- Replace rows and append records, all or nothing.
--
-- ARGV: '1' = at maxmemory too; number of swaps, then for each: table, key, what it must hold ('' = nothing, else '=' .. value),
--       its new value, number of further rows, key, value, ... of these, number of keys to delete, these keys;
--       number of ends, then for each: topic, partition, the offset at which it must end;
--       then for each topic: number of arguments, arguments as of `publish.lua`, whose writer and names do not count here.
-- Reply: {'P'} if it is done, even by an earlier call; or, with nothing written, {'X'} if a row holds
--        another value or a partition ends elsewhere, or {place of the topic, the reply of `publish.lua` to it}.
--@ append
local at = 2
local function read()
  at = at + 1
  return ARGV[at - 1]
end
local function read_list(length)
  local found = {}
  for place = 1, length do
    found[place] = read()
  end
  return found
end

local swaps, is_done, is_due = {}, true, true
for place = 1, tonumber(read()) do
  local swap = { rows = 'cw:table:' .. read(), key = read(), old = read(), new = read() }
  swap.put = read_list(2 * tonumber(read()))
  swap.delete = read_list(tonumber(read()))
  swaps[place] = swap
  local found = call('HGET', swap.rows, swap.key)
  is_done = is_done and found == swap.new
  is_due = is_due and (found and '=' .. found or '') == swap.old
end
if is_done then
  return { 'P' }
end
for _ = 1, tonumber(read()) do
  local topic, partition = read(), read()
  is_due = is_due and (call('HGET', 'cw:topic:' .. topic, partition .. ':end') or '0') == read()
end
if not is_due then
  return { 'X' }
end
local topics = {}
while at <= #ARGV do
  local own = read_list(tonumber(read()))
  topics[#topics + 1] = own
  local refusal = refusal_of(own)
  if refusal then
    return { format('%.0f', #topics - 1), unpack(refusal) }
  end
end
if ARGV[1] == '1' then
--@ oom
end
local clock = call('TIME')
local now = format('%.0f', tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000))
for _, own in ipairs(topics) do
  append(own, now)
end
-- Lua passes only a few thousand arguments at a time.
local function call_in_parts(command, rows, list)
  for i = 1, #list, 1000 do
    call(command, rows, unpack(list, i, math.min(i + 999, #list)))
  end
end
for _, swap in ipairs(swaps) do
  call_in_parts('HSET', swap.rows, swap.put)
  call('HSET', swap.rows, swap.key, swap.new)
  call_in_parts('HDEL', swap.rows, swap.delete)
end
return { 'P' }
