-- hold_all.lua: take several keys of one slot, or none of them.
-- KEYS[1] … KEYS[n] the keys; with fences KEYS[n+1] … KEYS[2n] their counters, in the same slot
-- ARGV[1] token   ARGV[2] ttl in milliseconds   ARGV[3] n
-- ARGV[4] only with fences: how long the counters outlive the keys, in milliseconds
-- => {0, fence, …}        taken, all of them (also those that were yours: a repeated request gets
--                         the same fences); without ARGV[4] no fences
-- => {i, value, ttl}      the first key that is not free: which one, who has it, and its PTTL
-- Never changes a key that is held, not even its ttl; takes nothing where one is not free.
local count = tonumber(ARGV[3])
for i = 1, count do
  local value = redis.call('GET', KEYS[i])
  if value and value ~= ARGV[1] then
    return {i, value, redis.call('PTTL', KEYS[i])}
  end
end
local now = 0
if ARGV[4] then
  -- Before 7.0 a script that asks for the time must say that its effects, not its text, are copied.
  if redis.replicate_commands then
    redis.replicate_commands()
  end
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local fences = {0}
for i = 1, count do
  local is_new = redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2])
  if ARGV[4] then
    fences[i + 1] = tonumber(redis.call('GET', KEYS[count + i]) or '0')
    if is_new then
      fences[i + 1] = math.max(fences[i + 1] + 1, now)
      local fence = string.format('%.0f', fences[i + 1])
      redis.call('SET', KEYS[count + i], fence, 'PX', ARGV[2] + ARGV[4])
    end
  end
end
return fences
