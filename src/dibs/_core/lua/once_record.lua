-- once_record.lua: record that work was done whose claim has expired, or on a server without memory.
-- KEYS[1] the key   ARGV[1] the claim, as it was written   ARGV[2] the record   ARGV[3] its ms
-- ARGV[4] until when a free key is taken, in ms of the server's clock; 0: it is not; -1: at any time
-- ARGV[5] 1: also on a server that is out of memory; the record is not longer than the claim
-- => 1              recorded (also: it was already, a repeated request)
-- => 0              not recorded: the key has another claim or record
-- => a greater one  not recorded: the key is free; the server's clock, in ms
-- A copy that arrives late finds the record, or comes after the time of ARGV[4]. Never touches
-- another's claim or record.
local found = redis.call('GET', KEYS[1])
if found and string.sub(found, 1, #ARGV[2]) == ARGV[2] then
  return 1
end
if found and found ~= ARGV[1] then
  return 0
end
local until_ms = tonumber(ARGV[4])
if not found and until_ms >= 0 then
  -- Before 7.0 a script that asks for the time must say that its effects, not its text, are copied.
  if redis.replicate_commands then
    redis.replicate_commands()
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if now >= until_ms then
    return now
  end
end
if ARGV[5] == '1' then
  -- A server without memory refuses SET as the first write of a script, but not as a later one.
  redis.call('DEL', KEYS[1])
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
