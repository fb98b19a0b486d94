-- Which life of the store the record of an offset is of, by its partition's history: see bus/lives.py.
local function life_of(topic, partition, offset)
  local history = redis.call('HGET', 'cw:topic:' .. topic, partition .. ':lives')
  for life, start in string.gmatch(history or '', '(%S+)@(%d+)') do
    if tonumber(offset) >= tonumber(start) then
      return life
    end
  end
  return '-'
end
