-- quota.lua: count units of a key in a period of the calendar, such as a day, if there are some left.
-- KEYS[1] the key: "dibs1 quota <start> <used> <request> …": the beginning of the period in µs of the
--         server's clock, what was counted in it, and the last requests that were counted
-- ARGV[1] what names this request   ARGV[2] its cost in units; 0: look only   ARGV[3] units of a period
-- ARGV[4] the beginning of the period in which the request was counted that is settled: then it is
--         counted in any case, but in no other period; ''
-- ARGV[5], … the limits of periods one after another, in µs: the server's clock says which one it is
-- => {1, left, µs, start}  counted (also: it was already, or its period is over); how many are left,
--                          the time to the end of the period, and its beginning
-- => {0, left, µs, start}  not counted: fewer are left than it costs
-- => {-1, now, 0, 0}       the server's clock is in none of the periods
-- => error WRONGTYPE       the key is not a quota
-- A clock that was set back into an earlier period continues the later one. A request that is repeated
-- after more than eight others counts twice: that lets fewer through, never more. Never touches a key
-- that is not a quota.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local cost, limit = tonumber(ARGV[2]), tonumber(ARGV[3])
local value = redis.call('GET', KEYS[1])
local used, requests, stored = 0, '', nil
if value then
  local start, count, names = string.match(value, '^dibs1 quota (%d+) (%d+)([%w%- ]*)$')
  if not start then
    return redis.error_reply('WRONGTYPE the key is not a quota')
  end
  stored, used, requests = tonumber(start), tonumber(count), names
end
local begin, finish
for at = 5, #ARGV - 1 do
  local from, to = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  if (from <= now and now < to) or (stored == from and now < from) then
    begin, finish = from, to
  end
end
if not begin then
  return {-1, now, 0, 0}
end
if stored ~= begin then
  used, requests = 0, ''
end
local is_repeated = string.find(requests .. ' ', ' ' .. ARGV[1] .. ' ', 1, true)
local settles = ARGV[4] ~= ''
local function answer(code)
  return {code, math.max(limit - used, 0), finish - now, begin}
end
if is_repeated or cost == 0 or (settles and tonumber(ARGV[4]) ~= begin) then
  return answer(1)
end
if not settles and used + cost > limit then
  return answer(0)
end
used = math.max(used + cost, 0)
local names, count = ' ' .. ARGV[1], 1
for name in string.gmatch(requests, '%S+') do
  if count < 8 then
    names, count = names .. ' ' .. name, count + 1
  end
end
value = string.format('dibs1 quota %.0f %.0f', begin, used) .. names
redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((finish - now) / 1000), 1))
return answer(1)
