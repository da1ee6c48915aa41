-- hold_acquire_fenced.lua: take a free key and a fence that is greater than every earlier one of it.
-- KEYS[1] the key   KEYS[2] its fence counter, in the same slot
-- ARGV[1] token     ARGV[2] ttl in milliseconds   ARGV[3] how long the counter outlives it, ms
-- => {false, fence} taken (or it was yours already: a repeated request gets the same fence)
-- => {value, 0}     who has it
-- The fence is the server's clock in microseconds, or the last fence plus one, whichever is
-- greater. So a counter may expire: a later fence starts above it, unless the server's clock is
-- set back by more than the counter's life. Never changes a key that is held.
local value = redis.call('GET', KEYS[1])
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
if value == ARGV[1] then
  return {false, last}
end
if value then
  return {value, 0}
end
-- Before 7.0 a script that asks for the time must say that its effects, not its text, are copied.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local fence = math.max(last + 1, time[1] * 1000000 + time[2])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[2] + ARGV[3])
return {false, fence}
