-- hold_permit.lua: take one of a limited number of permits of a key.
-- KEYS[1] the key: a sorted set, token → the moment it expires (ms of the server's clock)
-- KEYS[2] only with a fence: its fence counter, in the same slot
-- KEYS[3] only with a fence: a sorted set, token → fence of its permit, in the same slot
-- ARGV[1] token   ARGV[2] ttl in milliseconds   ARGV[3] limit
-- ARGV[4] only with a fence: how long the counter outlives the permit, in milliseconds
-- => false (nil)               taken, it is yours (also: it was already, a repeated request)
-- => fence (a number)          the same, with a fence; a repeated request gets the fence of the first
-- => {token, ms, expiry}       all are taken: who is the first to expire, after how long; and the
--                              greatest expiry, which changes when a permit is taken or renewed
-- => error WRONGTYPE           the key is not a set of permits: another program's, or a plain lease
-- The key expires with the last of its permits. Permits that have expired are removed only when
-- one is wanted. Never takes a permit from its holder, and never touches a set that is not ours.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expiry = now + ARGV[2]
local limit = tonumber(ARGV[3])
local taken = redis.call('ZCARD', KEYS[1])
local greatest = 0
if taken > 0 then
  local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  if not string.find(last[1], '^%x+%-%x+[~%d]*@') then
    return redis.error_reply('WRONGTYPE the key is a sorted set of another program')
  end
  greatest = tonumber(last[2])
end
if taken >= limit and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  -- Not those that expire in this very millisecond: a holder's clock is finer. As keys do.
  taken = taken - redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)
  if taken >= limit then
    local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    return {first[1], math.max(first[2] - now, 1), string.format('%.0f', greatest)}
  end
end
local is_new = redis.call('ZADD', KEYS[1], 'NX', expiry, ARGV[1]) == 1
if is_new and expiry > greatest then
  redis.call('PEXPIREAT', KEYS[1], expiry)
end
if not KEYS[2] then
  return false
end
if not is_new then
  -- Not the counter: others may have taken permits since.
  return tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or redis.call('GET', KEYS[2]) or '0')
end
local fence = tonumber(redis.call('GET', KEYS[2]) or '0')
fence = math.max(fence + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[2] + ARGV[4])
redis.call('ZADD', KEYS[3], string.format('%.0f', fence), ARGV[1])
redis.call('PEXPIREAT', KEYS[3], math.max(expiry, greatest))
if redis.call('ZCARD', KEYS[3]) > 2 * limit + 8 then  -- those of permits that were released
  for _, token in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    if not redis.call('ZSCORE', KEYS[1], token) then
      redis.call('ZREM', KEYS[3], token)
    end
  end
end
return fence
