-- cache_unlock.lua: the load failed: let another process try.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot
-- ARGV[1] token, with which the lock begins   ARGV[2] the mark of this load   ARGV[3] how long no process is to try again, in ms
-- => 1 the lock is free   0 it was not (or no longer) yours
-- A value that was put behind the mark is put back, for the rest of its life.
-- Never touches a value, another's mark or another's lock.
local value = redis.call('GET', KEYS[1])
if value == ARGV[2] then
  redis.call('DEL', KEYS[1])
elseif value and string.sub(value, 1, #ARGV[2] + 1) == ARGV[2] .. ' ' then
  local cut = string.find(value, '\n', 1, true)
  local left = redis.call('PTTL', KEYS[1]) - tonumber(string.sub(value, #ARGV[2] + 2, cut - 1))
  if left > 0 then
    redis.call('SET', KEYS[1], string.sub(value, cut + 1), 'PX', left)
  else
    redis.call('DEL', KEYS[1])
  end
end
local secret = string.match(ARGV[1], '^[^@]*') .. ' '
if string.sub(redis.call('GET', KEYS[2]) or '', 1, #secret) ~= secret then
  return 0
end
if ARGV[3] ~= '0' then
  redis.call('SET', KEYS[2], '!', 'PX', ARGV[3])
  return 1
end
return redis.call('DEL', KEYS[2])
