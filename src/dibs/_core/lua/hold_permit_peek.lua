-- hold_permit_peek.lua: which permit of a key expires first.
-- KEYS[1] the key: a sorted set, token → the moment it expires (ms of the server's clock)
-- ARGV[1] and others: none
-- => {token, ms}  who has it, and for how long      false (nil) it is free
-- Never changes anything.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local found = redis.call('ZRANGEBYSCORE', KEYS[1], now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return found[1] and {found[1], found[2] - now}
