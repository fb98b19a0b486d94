-- Begin a new life of the store if this is another run of its server than the one that wrote last: see bus/lives.py. Every
-- connection calls this first, and none outlives its server, so nothing is appended before.
-- ARGV: a random id, for a new life.
--@ oom
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local life = redis.call('GET', 'cw:life')
if not life or string.sub(life, 13) ~= run then
  redis.call('SET', 'cw:life', string.sub(ARGV[1], 1, 12) .. run)
end
return redis.status_reply('OK')
