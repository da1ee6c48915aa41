-- once_complete.lua: what the work leaves takes the place of its claim.
-- For servers without a native compare-and-set.
-- KEYS[1] the key   ARGV[1] the claim, as it was written   ARGV[2] what is left   ARGV[3] its ms
-- => 1 left   0 not left: the key has another value   -2 not left: the key is free
-- Never takes a free key and never touches another's claim or result.
local found = redis.call('GET', KEYS[1])
if found == ARGV[2] then
  return 1
end
if found == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return 1
end
return found and 0 or -2
