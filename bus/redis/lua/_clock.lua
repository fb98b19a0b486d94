-- Milliseconds by the clock of Redis.
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)
local function number(value)
  return string.format('%.0f', value)
end
