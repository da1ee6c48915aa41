-- window.lua: count a call of a key, if no window of that length then has more units than the limit.
-- KEYS[1] the key, a sorted set: "=<units>" with score 0, all units in it; and for each call
--         "<cost> <request>" with its time, in µs of the server's clock, the later ones last
-- ARGV[1] what names this request   ARGV[2] its cost in units; 0: look only
-- ARGV[3] the longest delay, in µs, that the caller waits for   ARGV[4] the length of a window in µs
-- ARGV[5] the limit in units
-- ARGV[6] the request that is settled, ARGV[7] its cost until now: it costs ARGV[2] from now on
-- => {1, left, µs}   counted (also: it was already, or what is settled is over), or looked at; how many units are
--                    left now, and after how long there are more
-- => {2, 0, µs}      counted, and it is its turn after so long
-- => {0, 0, µs}      not counted: after how long it would be
-- => error WRONGTYPE the key is not a sorted set
-- Calls have their turn in the order in which they were counted. If the clock is set back, nothing is
-- let through until the key expires, after one window at most. Never touches a set without a "=" first.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local cost, patience = tonumber(ARGV[2]), tonumber(ARGV[3])
local length, limit = tonumber(ARGV[4]), tonumber(ARGV[5])
local member = ARGV[2] .. ' ' .. ARGV[1]
local function at(index)
  local found = redis.call('ZRANGE', KEYS[1], index, index, 'WITHSCORES')
  return found[1], tonumber(found[2])
end
local function cost_of(entry)
  return tonumber(string.match(entry, '^(%d+) '))
end
local head = at(0)
local total = 0
if head then
  total = tonumber(string.match(head, '^=(%d+)$'))
  if not total then
    return redis.error_reply('WRONGTYPE the key is not a rate')
  end
end
local before = total
local function write(until_time)
  redis.call('ZREM', KEYS[1], '=' .. string.format('%.0f', before))
  if total == 0 then
    return
  end
  redis.call('ZADD', KEYS[1], 0, '=' .. string.format('%.0f', total))
  redis.call('PEXPIRE', KEYS[1], math.max(math.ceil((until_time + length - now) / 1000), 1))
end
local function answer()
  local _, oldest = at(1)
  return {1, math.max(limit - total, 0), oldest and math.max(oldest + length - now, 0) or 0}
end
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(0', now - length)) do
  total = total - cost_of(entry)
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(0', now - length)
local _, last = at(-1)
last = math.max(last or 0, now)
if total ~= before then
  write(last)
  before = total
end
if ARGV[6] then
  local old = ARGV[7] .. ' ' .. ARGV[6]
  local counted = redis.call('ZSCORE', KEYS[1], old)
  if counted then
    redis.call('ZREM', KEYS[1], old)
    if cost > 0 then
      redis.call('ZADD', KEYS[1], counted, ARGV[2] .. ' ' .. ARGV[6])
    end
    total = total + cost - tonumber(ARGV[7])
    write(last)
  end
  return answer()
end
if cost == 0 then
  return answer()
end
local counted = redis.call('ZSCORE', KEYS[1], member)
if counted then
  return tonumber(counted) > now and {2, 0, tonumber(counted) - now} or answer()
end
local slot, missing, index = last, total + cost - limit, 1
while missing > 0 do
  local entry, moment = at(index)
  missing, index = missing - cost_of(entry), index + 1
  slot = math.max(slot, moment + length)
end
if slot - now > patience then
  return {0, 0, slot - now}
end
redis.call('ZADD', KEYS[1], slot, member)
total = total + cost
write(slot)
if slot > now then
  return {2, 0, slot - now}
end
return answer()
