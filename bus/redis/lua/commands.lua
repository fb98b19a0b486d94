-- Several commands in one step. ARGV: for each command, the number of its arguments, and the arguments.
local replies, i = {}, 1
while i <= #ARGV do
  local count = tonumber(ARGV[i])
  replies[#replies + 1] = redis.call(unpack(ARGV, i + 1, i + count))
  i = i + count + 1
end
return replies
