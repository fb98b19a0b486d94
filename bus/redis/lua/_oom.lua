-- At maxmemory Redis refuses a script at its first write, unless that frees memory. Scripts that let work end must run,
-- because they make room.
redis.call('DEL', 'cw:oom')
