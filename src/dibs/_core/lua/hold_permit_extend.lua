-- hold_permit_extend.lua: let a permit expire later.
-- KEYS[1] the key: a sorted set, token → the moment it expires (ms of the server's clock)
-- ARGV[1] token   ARGV[2] ttl in milliseconds, from now on
-- ARGV[3] only to let it expire earlier, for a release with at_least: what takes the token's place
-- => 1 done       0 it was not (or no longer) yours
-- Without ARGV[3] it never shortens the life of a permit: an older copy of the request may come late.
-- The key expires with the last of its permits. Never takes a permit, and never touches another's.
if redis.replicate_commands then
  redis.replicate_commands()
end
local before = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not before then
  return ARGV[3] and redis.call('ZSCORE', KEYS[1], ARGV[3]) and 1 or 0  -- a repeated request
end
local time = redis.call('TIME')
local expiry = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2]
if ARGV[3] then
  redis.call('ZADD', KEYS[1], expiry, ARGV[3])
  redis.call('ZREM', KEYS[1], ARGV[1])
elseif expiry > tonumber(before) then
  redis.call('ZADD', KEYS[1], expiry, ARGV[1])
end
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], last[2])
return 1
