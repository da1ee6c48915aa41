-- hold_extend.lua: keep a key for another ttl.
-- KEYS[1] the key   ARGV[1] token   ARGV[2] ttl in milliseconds
-- ARGV[3] only to let it expire earlier, for a release with at_least: anything
-- => 1 kept         0 it was not (or no longer) yours
-- Without ARGV[3] it never shortens the life of the key: an older copy of the request may come late.
-- Never takes a free key and never touches another holder's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local left = ARGV[3] or redis.pcall('PTTL', KEYS[1])
if type(left) == 'number' and left >= tonumber(ARGV[2]) then
  return 1
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
