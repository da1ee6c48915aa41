-- hold_acquire.lua: take a free key. For servers whose SET cannot do NX and GET at once (before 7.0).
-- KEYS[1] the key   ARGV[1] token   ARGV[2] ttl in milliseconds
-- => false (nil)    taken, it is yours
-- => the value      who has it; equal to the token: it was yours already (a repeated request)
-- Never changes a key that is held, not even its ttl.
local value = redis.call('GET', KEYS[1])
if value then
  return value
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
