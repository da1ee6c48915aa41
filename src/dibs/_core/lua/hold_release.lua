-- hold_release.lua: give a key back. For servers without a native compare-and-delete.
-- KEYS[1] the key   ARGV[1] token
-- => 1 given back   0 it was not (or no longer) yours
-- Never touches another holder's key.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
