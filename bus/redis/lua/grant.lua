-- ARGV: the number of leases to revoke, their names, then lease, note, ... of those to grant.
local revoked = tonumber(ARGV[1])
for i = 2, revoked + 1 do
  redis.call('HDEL', 'cw:leases', ARGV[i])
end
for i = revoked + 2, #ARGV, 2 do
  redis.call('HSET', 'cw:leases', ARGV[i], ARGV[i + 1])
end
return 1
