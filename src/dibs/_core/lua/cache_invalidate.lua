-- cache_invalidate.lua: delete a cached value and, with its lock, the right of a load under way to store.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot   (no ARGV[1])
-- => 1 there is no value now   0 the key is held by a lease or a claim
-- Never touches a lease or a claim.
local value = redis.call('GET', KEYS[1])
if value and (string.sub(value, 1, 11) == 'dibs1 done '
  or string.find(value, '^' .. string.rep('%x', 16) .. '%x*%-%x+[@ ]')) then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
