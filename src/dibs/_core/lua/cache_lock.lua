-- cache_lock.lua: read a cached value, and where it needs a load, decide who does it: one round trip.
-- KEYS[1] the value   KEYS[2] its lock, in the same slot
-- ARGV[1] token       ARGV[2] ttl of the lock in ms   ARGV[3] how long past its ttl it may be served, ms
-- ARGV[4] "0"; "1": load even though it is fresh; else the first line of a value that counts as none
-- ARGV[5] the mark: "a load is under way", by this token
-- ARGV[6] life of the mark in ms                      ARGV[7] the longest time that a load may take, ms
-- => {value, ms left, 0}   fresh, or another process is loading (value false: there is none)
-- => {value, ms left, 1, lock}  you load it (again, if this is a repeated request), with this lock:
--                          the token and the server's time, which only this execution knows
-- => {value, ms left, 2}   an old value; a load has just failed, and no process tries again for a while
-- => {value, ms left, 3}   the same as 0, but the lock is another program's, or has no ttl
-- => {value, 0, 0}         the key is held by a lease or a claim
-- Where there is no value, or only a failure that is over, the mark takes its place. A value that may
-- end during the load is put behind the mark: "<mark> <life of the mark>\n<value>", and lives on for
-- its own time. So something stands there until the load is stored, and a plain DEL of any client
-- is noticed. Where nothing stands there, a repeated request takes another lock: a copy of it that comes
-- late does not bring back what the load before it has lost. Never changes another value, never touches a lease or a claim, never takes a lock that
-- is held.
if redis.replicate_commands then
  redis.replicate_commands()
end
local token = '^' .. string.rep('%x', 16) .. '%x*%-%x+[@ ]'
local value = redis.call('GET', KEYS[1])
local stands = value
local left, behind = 0, 0
if value then
  if string.sub(value, 1, 6) ~= 'dibs1 ' then
    if string.find(value, token) then
      return {value, 0, 0}
    end
  elseif string.sub(value, 7, 11) == 'done ' then
    return {value, 0, 0}
  elseif string.sub(value, 7, 7) == '~' then
    local cut = string.find(value, '\n', 1, true)
    behind = cut and tonumber(string.match(string.sub(value, 1, cut - 1), '(%d+)$')) or 0
    value = cut and string.sub(value, cut + 1)
  end
end
if value then
  left = redis.call('PTTL', KEYS[1]) - behind
  local failed = string.sub(value, 1, 8) == 'dibs1 ! '
  if (failed and left <= tonumber(ARGV[3])) or (behind > 0 and left <= 0)
    or (#ARGV[4] > 1 and string.sub(value, 1, #ARGV[4]) == ARGV[4]) then
    value, left = false, 0
  elseif left > tonumber(ARGV[3]) and ARGV[4] ~= '1' then
    return {value, left, 0}
  end
end
local holder = redis.call('GET', KEYS[2])
if holder == '!' and value and ARGV[4] ~= '1' then
  return {value, left, 2}
end
local secret = string.match(ARGV[1], '^[^@]*')
local is_ours = holder and string.sub(holder, 1, #secret + 1) == secret .. ' '
if holder and holder ~= '!' and not is_ours then
  local is_load = string.find(holder, token) and redis.call('PTTL', KEYS[2]) >= 0
  return {value or false, left, is_load and 0 or 3}
end
if not is_ours or not stands then
  local time = redis.pcall('TIME')
  local now = time.err and '0' or time[1] .. string.format('%06d', time[2])
  holder = secret .. ' ' .. now .. string.sub(ARGV[1], #secret + 1)
end
redis.call('SET', KEYS[2], holder, 'PX', ARGV[2])
if not value then
  redis.call('SET', KEYS[1], ARGV[5], 'PX', ARGV[6])
elseif left >= 0 and left < tonumber(ARGV[7]) then
  local marked = ARGV[5] .. ' ' .. ARGV[6] .. '\n' .. value
  redis.call('SET', KEYS[1], marked, 'PX', left + ARGV[6])
end
return {value or false, left, 1, holder}
