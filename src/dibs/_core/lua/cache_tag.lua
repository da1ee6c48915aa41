-- cache_tag.lua: the version of a tag, for a load that is about to begin.
-- KEYS[1] the tag     ARGV[1] a random number: the beginning of the version, where there is none
-- ARGV[2] how long it has to live from now on, at least, in ms
-- => the version   0 the key is something else: a lease, a claim, a value
-- A version ends with the server's time: a copy of the request that comes late, after the tag was
-- invalidated, does not bring back the version before. Never changes a stored version; a version lives on.
if redis.replicate_commands then
  redis.replicate_commands()
end
local version = redis.call('GET', KEYS[1])
if not version then
  local time = redis.pcall('TIME')
  version = ARGV[1]
  if not time.err then
    version = string.sub(version, 1, 5) .. string.format('%06x%05x', time[1] % 16777216, time[2])
  end
  redis.call('SET', KEYS[1], version, 'PX', ARGV[2])
  return version
end
if #version ~= 16 or string.find(version, '%X') then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return version
