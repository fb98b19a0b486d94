-- Settle records of a group, except those that the store has lost and replaced with others.
-- ARGV: topic, group, partition, then per record: its offset, the life of the store that it is of ('' = not known).
-- Reply: how many were pending and no longer are, how many belong to another life.
--@ oom
--@ life
local topic, group, partition = ARGV[1], ARGV[2], ARGV[3]
local done, late = 0, 0
for i = 4, #ARGV, 2 do
  local offset, life = ARGV[i], ARGV[i + 1]
  if life ~= '' and life ~= life_of(topic, partition, offset) then
    late = late + 1
  else
    done = done + redis.call('XACK', 'cw:log:' .. topic .. ':' .. partition, group, offset .. '-1')
  end
end
return { done, late }
