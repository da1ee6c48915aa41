-- hold_resume.lua: continue a lease or a claim that another process has detached, or undo that.
-- KEYS[1] the key   KEYS[2] only with a fence: its fence counter, in the same slot
-- ARGV[1] the secret of the token that was handed over   ARGV[2] the secret that replaces it
-- ARGV[3] who continues it   ARGV[4] ttl in milliseconds   ARGV[5] how long the counter outlives it
-- ARGV[6] only to undo it, with the two secrets exchanged: anything
-- => {value, 1, fence}  continued: the value that the key has now; fence 0 where none was asked for
--                       (a repeated request gets the same answer)
-- => {value, 0, ttl}    not yours: the current value, and its PTTL
-- => {false, 0, -2}     the key is free
-- The token is worth nothing afterwards: of several that continue with it, one succeeds.
-- Behind the new secret, after a "~", is the PTTL that the key had; who undoes it restores that.
-- Never takes a free key and never touches another holder's.
local value = redis.call('GET', KEYS[1])
if not value then
  return {false, 0, -2}
end
local secret, middle, rest = string.match(value, '^([^ @]+)([^@]*)@[^\n]*(.*)$')
local last = KEYS[2] and tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local own, before = secret, false
if secret then
  own, before = string.match(secret, '^([^~]*)~?(.*)$')
end
if own == ARGV[2] then
  return {value, 1, last}
end
local left = redis.call('PTTL', KEYS[1])
if own ~= ARGV[1] then
  return {value, 0, left}
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
local ttl, mark = ARGV[4], ''
if not ARGV[6] and left > 0 then
  mark = '~' .. left
elseif ARGV[6] and before ~= '' then
  ttl = before
end
value = ARGV[2] .. mark .. middle .. '@' .. ARGV[3] .. rest
redis.call('SET', KEYS[1], value, 'PX', ttl)
return {value, 1, fence}
