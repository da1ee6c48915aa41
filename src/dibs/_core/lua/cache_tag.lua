-- cache_tag.lua: the version of a tag, for a load that is about to begin.
-- KEYS[1] the tag     ARGV[1] the version to begin with, where there is none
-- ARGV[2] how long it has to live from now on, at least, in ms
-- => the version   0 the key is something else: a lease, a claim, a value
-- Never changes what is there; a version lives on.
local version = redis.call('GET', KEYS[1])
if not version then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return ARGV[1]
end
if #version ~= 16 or string.find(version, '%X') then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return version
