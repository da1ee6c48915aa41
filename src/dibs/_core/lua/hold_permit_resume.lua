-- hold_permit_resume.lua: hand a permit over, continue one that was handed over, or undo that.
-- KEYS[1] the key: a sorted set, token → the moment it expires (ms of the server's clock)
-- KEYS[2] only to continue it with a fence: its fence counter, in the same slot
-- KEYS[3] only with a fence: a sorted set, token → fence of its permit, in the same slot
-- ARGV[1] its token; to undo, the secret that replaced it
-- ARGV[2] the secret that replaces that; to undo, the whole token
-- ARGV[3] who has it then   ARGV[4] ttl in milliseconds   ARGV[5] how long the counter outlives it
-- ARGV[6] "give", "take" or "undo"
-- => {token, 1, fence}  done: its token now; fence 0 where none was asked for (a repeated request
--                       gets the same answer)
-- => {false, 0, -2}     it has expired, or was released or continued
-- Behind the secret of one that is continued, after a "~", is the time that it had left; who undoes
-- it restores that. Never takes a permit that is free, and never touches another's.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function begins_with(secret)
  for _, token in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if string.match(token, '^([^~@]*)') == secret then
      return token
    end
  end
  return false
end
local before, after, ttl = ARGV[1], ARGV[2] .. '@' .. ARGV[3], tonumber(ARGV[4])
local left = 0
if ARGV[6] == 'undo' then
  before, after = begins_with(ARGV[1]), ARGV[2]
  left = before and string.match(before, '~(%d+)@')
  ttl = tonumber(left or ttl)
end
local expiry = before and redis.call('ZSCORE', KEYS[1], before)
if not expiry or tonumber(expiry) < now then
  local repeated = ARGV[6] == 'undo' and after or begins_with(ARGV[2])
  if not repeated or not redis.call('ZSCORE', KEYS[1], repeated) then
    return {false, 0, -2}
  end
  return {repeated, 1, tonumber(KEYS[3] and redis.call('ZSCORE', KEYS[3], repeated) or '0')}
end
if ARGV[6] == 'take' then
  after = ARGV[2] .. '~' .. string.format('%.0f', expiry - now) .. '@' .. ARGV[3]
end
redis.call('ZREM', KEYS[1], before)
redis.call('ZADD', KEYS[1], now + ttl, after)
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], last[2])
if not KEYS[2] then
  return {after, 1, 0}
end
local fence = tonumber(redis.call('GET', KEYS[2]) or '0')
fence = math.max(fence + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4] + ARGV[5])
redis.call('ZADD', KEYS[3], string.format('%.0f', fence), after)
redis.call('PEXPIREAT', KEYS[3], last[2])
return {after, 1, fence}
