-- Redis refuses a script at maxmemory by its first write, unless that frees memory. What lets work end must run: it is
-- what makes room.
redis.call('DEL', 'cw:oom')
