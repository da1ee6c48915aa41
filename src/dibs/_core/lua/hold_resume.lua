-- hold_resume.lua: continue a lease or a claim that another process has detached.
-- KEYS[1] the key   KEYS[2] only with a fence: its fence counter, in the same slot
-- ARGV[1] the secret of the token that was handed over   ARGV[2] the secret that replaces it
-- ARGV[3] who continues it   ARGV[4] ttl in milliseconds   ARGV[5] how long the counter outlives it
-- => {value, 1, fence}  continued: the value that the key has now; fence 0 where none was asked for
--                       (a repeated request gets the same answer)
-- => {value, 0, ttl}    not yours: the value that is there, and its PTTL
-- => {false, 0, -2}     nobody has the key
-- The token is worth nothing afterwards: of several that continue with it, one succeeds.
-- Never takes a free key and never touches another holder's.
local value = redis.call('GET', KEYS[1])
if not value then
  return {false, 0, -2}
end
local secret, middle, rest = string.match(value, '^([^ @]+)([^@]*)@[^\n]*(.*)$')
local last = KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or '0') or 0
if secret == ARGV[2] then
  return {value, 1, last}
end
if secret ~= ARGV[1] then
  return {value, 0, redis.call('PTTL', KEYS[1])}
end
local fence = 0
if KEYS[2] then
  -- Before 7.0 a script that asks for the time must say that its effects, not its text, are copied.
  if redis.replicate_commands then
    redis.replicate_commands()
  end
  local time = redis.call('TIME')
  fence = math.max(last + 1, time[1] * 1000000 + time[2])
  redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4] + ARGV[5])
end
value = ARGV[2] .. middle .. '@' .. ARGV[3] .. rest
redis.call('SET', KEYS[1], value, 'PX', ARGV[4])
return {value, 1, fence}
