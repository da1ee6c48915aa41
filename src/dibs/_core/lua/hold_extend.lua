-- hold_extend.lua: keep a key for another ttl. For servers without a native compare-and-set.
-- KEYS[1] the key   ARGV[1] token   ARGV[2] ttl in milliseconds
-- => 1 kept         0 it was not (or no longer) yours
-- Never takes a free key and never touches another holder's.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
