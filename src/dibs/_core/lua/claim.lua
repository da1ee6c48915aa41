-- claim.lua: read a cached value, and where it needs a load, decide who does it: one round trip.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot
-- ARGV[1] token       ARGV[2] ttl of the lock in ms   ARGV[3] how long past its ttl it may be served, ms
-- ARGV[4] "1": load even though it is fresh           ARGV[5] the mark: "a load is under way", by this token
-- ARGV[6] life of the mark in ms
-- => {value, ms left, 0}   fresh, or somebody else is loading (value false: there is none)
-- => {value, ms left, 1}   you load it (again, if this is a repeated request)
-- Where there is no value the mark takes its place, so that a plain DEL of the value, by whomever,
-- is noticed when the load comes to store its result. Never changes a value, never takes a lock
-- that somebody has.
local value = redis.call('GET', KEYS[1])
local left = 0
if value and string.sub(value, 1, 7) == 'dibs1 ~' then
  value = false
end
if value then
  left = redis.call('PTTL', KEYS[1])
  if left > tonumber(ARGV[3]) and ARGV[4] ~= '1' then
    return {value, left, 0}
  end
end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then
  return {value, left, 0}
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
if not value then
  redis.call('SET', KEYS[1], ARGV[5], 'PX', ARGV[6])
end
return {value, left, 1}
