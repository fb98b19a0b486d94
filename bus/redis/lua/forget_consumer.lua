-- Drop the name of a consumer where nothing is pending for it. ARGV: topic, group, consumer.
for p = 0, tonumber(redis.call('HGET', 'cw:topics', ARGV[1]) or '0') - 1 do
  local stream = 'cw:log:' .. ARGV[1] .. ':' .. p
  local waiting = redis.pcall('XPENDING', stream, ARGV[2], '-', '+', 1, ARGV[3])
  -- Redis would drop its pending records as well.
  if not waiting.err and #waiting == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, ARGV[2], ARGV[3])
  end
end
return 1
