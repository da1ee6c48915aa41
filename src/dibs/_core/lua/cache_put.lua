-- cache_put.lua: store a value that was not loaded, in place of the old one.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot
-- ARGV[1] the value, framed                           ARGV[2] its life in ms
-- => 1 kept   0 the key is held by a lease or a claim
-- With the lock goes the right of a load under way to store its result: it may be older.
-- Never touches a lease or a claim.
local value = redis.call('GET', KEYS[1])
if value and (string.sub(value, 1, 11) == 'dibs1 done '
  or string.find(value, '^' .. string.rep('%x', 16) .. '%x*%-%x+[@ ]')) then
  return 0
end
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
