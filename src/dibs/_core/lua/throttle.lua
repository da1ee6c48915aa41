-- throttle.lua: count a call of a key, if its rates allow it (GCRA, the generic cell rate algorithm).
-- KEYS[1] the key: "dibs1 rate <now>;<each>:<time>,… <request> …": when it was written; for each rate
--         its µs for one unit, and the time at which all that was counted is used up, in µs of the
--         server's clock; the last requests that were counted
-- ARGV[1] what names this request
-- ARGV[2] the longest delay, in µs, that the caller waits for; -1: settle, count it in any case
-- ARGV[3], ARGV[4], … for each rate: µs for one unit; its burst in units; the cost of the request in
--         units (0 for all rates: look only); what every call costs, 0: it differs
-- => {1, left, µs}   counted (also: it was already, a repeated request), or looked at; how many units
--                    are left now, none if a rate with a fixed cost allows no call; and after how long
--                    there is one more
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
local patience = tonumber(ARGV[2])
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
local left, reset, delay, latest, after, counts = nil, 0, 0, now, {}, false
for at = 3, #ARGV, 4 do
  local each, burst, rate = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), before[#after + 1]
  local cost, every = is_repeated and 0 or tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  counts = counts or cost ~= 0
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
  local more = used - (full - each * (units + 1))
  if every > 0 then
    units, more = units < every and 0, used - (full - each * every)
  end
  if units and (not left or units < left) then
    left, reset = units, more
  end
  latest = math.max(latest, used)
  after[#after + 1] = string.format('%.0f:%.0f', each, used)
end
if counts and patience >= 0 and delay > patience then
  return {0, 0, delay}
end
if counts then
  local names, count = ' ' .. ARGV[1], 1
  for name in string.gmatch(requests, '%S+') do
    if count < 8 then
      names, count = names .. ' ' .. name, count + 1
    end
  end
  value = string.format('dibs1 rate %.0f;', now) .. table.concat(after, ',') .. names
  redis.call('SET', KEYS[1], value, 'PX', math.max(math.ceil((latest - now) / 1000), 1))
end
if delay > 0 and patience >= 0 and (counts or is_repeated) then
  return {2, 0, delay}
end
return {1, left, reset}
