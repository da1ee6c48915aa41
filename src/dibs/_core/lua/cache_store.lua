-- cache_store.lua: the load is done: keep its result, if it is still wanted.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot
-- ARGV[1] the lock, as cache_lock answered it   ARGV[2] the result, framed   ARGV[3] its life in ms
-- => 1 kept (by this request, or by an earlier copy of it), and the lock is free
-- => 0 not kept: the lock was lost, or the value was deleted meanwhile
-- Never stores what was loaded before a delete: the old value, or the mark in its place, must still
-- be there. Never touches another's lock, a lease or a claim.
local value = redis.call('GET', KEYS[1])
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return value == ARGV[2] and 1 or 0
end
redis.call('DEL', KEYS[2])
if not value or string.sub(value, 1, 11) == 'dibs1 done '
  or string.find(value, '^' .. string.rep('%x', 16) .. '%x*%-%x+[@ ]') then
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
