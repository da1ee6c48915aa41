-- throttle.lua: count a call of a key, if its rate allows it (GCRA, the generic cell rate algorithm).
-- KEYS[1] the key: "dibs1 rate <time> <request> …", the time in µs of the server's clock at which
--         all that was counted is used up, and the last requests that were counted
-- ARGV[1] what names this request   ARGV[2] µs for one call   ARGV[3] burst, in calls
-- => {1, left, µs}   counted (also: it was already, a repeated request); how many calls are left now,
--                    and after how long there is one more
-- => {0, 0, µs}      not counted: after how long one would be
-- => error WRONGTYPE the key is not a rate: another program's, a lease or a cached value
-- A time beyond a full burst is of a clock that was set back, or of a slower rate: it counts as
-- full. A request that is repeated after more than eight others counts twice: that lets fewer
-- through, never more. Never touches a key that is not a rate.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local each = tonumber(ARGV[2])
local full = now + each * ARGV[3]
local value = redis.call('GET', KEYS[1])
local used, requests = now, ''
if value then
  local last, names = string.match(value, '^dibs1 rate (%d+)([%w%- ]*)$')
  if not last then
    return redis.error_reply('WRONGTYPE the key is not a rate')
  end
  used, requests = math.min(math.max(tonumber(last), now), full), names
end
local function left(at)
  local calls = math.floor((full - at) / each)
  return {1, calls, at - (full - each * (calls + 1))}
end
if string.find(requests .. ' ', ' ' .. ARGV[1] .. ' ', 1, true) then
  return left(used)
end
local next = used + each
if next > full then
  return {0, 0, next - full}
end
local names, count = ' ' .. ARGV[1], 1
for name in string.gmatch(requests, '%S+') do
  if count < 8 then
    names, count = names .. ' ' .. name, count + 1
  end
end
value = string.format('dibs1 rate %.0f', next) .. names
redis.call('SET', KEYS[1], value, 'PX', math.ceil((next - now) / 1000))
return left(next)
