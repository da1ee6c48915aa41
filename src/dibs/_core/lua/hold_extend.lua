-- hold_extend.lua: keep a key for another ttl.
-- KEYS[1] the key   ARGV[1] token   ARGV[2] ttl in milliseconds
-- ARGV[3] only to let it expire earlier, for a release with at_least: what takes the token's place
-- => 1 kept         0 it was not (or no longer) yours
-- Without ARGV[3] it never shortens the life of the key: an older copy of the request may come late.
-- Never takes a free key and never touches another holder's.
local value = redis.call('GET', KEYS[1])
if value and value == ARGV[3] then
  return 1  -- a repeated request
end
if value ~= ARGV[1] then
  return 0
end
if ARGV[3] then
  local written = redis.pcall('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
  -- A server without memory writes nothing; it changes an expiry all the same.
  return written.err and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 1
end
local left = redis.pcall('PTTL', KEYS[1])
if type(left) == 'number' and left >= tonumber(ARGV[2]) then
  return 1
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
