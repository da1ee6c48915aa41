-- abandon.lua: the load came to nothing: let somebody else try.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot
-- ARGV[1] token       ARGV[2] the mark of this load
-- => 1 the lock is free   0 it was not (or no longer) yours
-- Never touches a value, another's mark or another's lock.
if redis.call('GET', KEYS[1]) == ARGV[2] then
  redis.call('DEL', KEYS[1])
end
if redis.call('GET', KEYS[2]) == ARGV[1] then
  return redis.call('DEL', KEYS[2])
end
return 0
