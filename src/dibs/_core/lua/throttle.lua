-- throttle.lua: count a call of a key, if its rates allow it (GCRA, the generic cell rate algorithm).
-- KEYS[1] the key: "dibs1 rate <now>;<each>:<time>,… <request> …": when it was written; for each rate
--         its µs for one unit, and the time at which all that was counted is used up, in µs of the
--         server's clock; the last requests that were counted
-- ARGV[1] what names this request   ARGV[2] its cost in units; 0: look only
-- ARGV[3] the longest delay, in µs, that the caller waits for; -1: settle, count it in any case
-- ARGV[4], ARGV[5], … for each rate: µs for one unit, and its burst in units
-- => {1, left, µs}   counted (also: it was already, a repeated request); how many units are left now,
--                    and after how long there is one more
-- => {2, 0, µs}      counted, and it is its turn after so long
-- => {0, 0, µs}      not counted: after how long it would be
-- => error WRONGTYPE the key is not a rate: another program's, a lease or a cached value
-- Only callers that wait, or settle, take more than a burst. A clock that was set back moves the times
-- with it. If a rate has changed, what is used counts as a whole burst at most. A request that is
-- repeated after more than eight others counts twice: that lets fewer through, never more. Never
-- touches a key that is not a rate.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local cost, patience = tonumber(ARGV[2]), tonumber(ARGV[3])
local value = redis.call('GET', KEYS[1])
local before, requests = {}, ''
if value then
  local written, rates, names = string.match(value, '^dibs1 rate (%d+);([%d:,]+)([%w%- ]*)$')
  if not written then
    return redis.error_reply('WRONGTYPE the key is not a rate')
  end
  local set_back = math.max(tonumber(written) - now, 0)
  for each, used in string.gmatch(rates, '(%d+):(%d+)') do
    before[#before + 1] = {tonumber(each), tonumber(used) - set_back}
  end
  requests = names
end
local is_repeated = string.find(requests .. ' ', ' ' .. ARGV[1] .. ' ', 1, true)
if is_repeated then
  cost = 0
end
local left, reset, delay, latest, after = nil, 0, 0, now, {}
for at = 4, #ARGV, 2 do
  local each, burst, rate = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), before[#after + 1]
  local full = now + each * burst
  local used = now
  if rate then
    used = math.max(rate[2], now)
    if rate[1] ~= each then
      used = math.min(used, full)
    end
  end
  used = math.max(used + each * cost, now)
  delay = math.max(delay, used - full)
  local units = math.max(math.floor((full - used) / each), 0)
  if not left or units < left then
    left, reset = units, used - (full - each * (units + 1))
  end
  latest = math.max(latest, used)
  after[#after + 1] = string.format('%.0f:%.0f', each, used)
end
if not is_repeated and patience >= 0 and delay > patience then
  return {0, 0, delay}
end
if cost ~= 0 then
  local names, count = ' ' .. ARGV[1], 1
  for name in string.gmatch(requests, '%S+') do
    if count < 8 then
      names, count = names .. ' ' .. name, count + 1
    end
  end
  value = string.format('dibs1 rate %.0f;', now) .. table.concat(after, ',') .. names
  redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((latest - now) / 1000), 1))
end
if delay > 0 and patience >= 0 then
  return {2, 0, delay}
end
return {1, left, reset}
