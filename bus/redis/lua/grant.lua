-- ARGV: the number of leases to revoke, their names, then lease, note, ... of those to grant.
local first = tonumber(ARGV[1]) + 2

local function run(command, from, upto)
  for i = from, upto, 1000 do
    redis.call(command, 'cw:leases', unpack(ARGV, i, math.min(i + 999, upto)))
  end
end

run('HDEL', 2, first - 1)
run('HSET', first, #ARGV)
return 1
