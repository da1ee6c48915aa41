-- store.lua: the load is done: keep its result, if it is still wanted.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot
-- ARGV[1] token       ARGV[2] the result, framed   ARGV[3] its life in ms
-- ARGV[4] "1": the old value, or the mark in its place, must still be there
-- => 1 kept, and the lock is free
-- => 0 not kept: the lock was lost, or the value was deleted meanwhile
-- Never stores what was loaded before a delete, never touches another's lock.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[2])
if ARGV[4] ~= '1' then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3], 'XX') and 1 or 0
