-- stream_resume.lua: continue a run whose process has died, where its items end.
-- KEYS[1] the record of the stream   KEYS[2] the items of the run, in the same slot
-- ARGV[1] the record that is replaced   ARGV[2] the new one   ARGV[3] its life in ms
-- ARGV[4] the new head of the items     ARGV[5] their life in ms
-- ARGV[6] the process counts as dead if they live no longer than this, in ms
-- ARGV[7] how long they must be, in bytes with their head: all of them are known to who continues
-- => 1 the run is ours (also: this request was executed before)   0 it is not
-- From now on appends of the attempt before are refused. Never changes an item.
local record = redis.call('GET', KEYS[1])
if record == ARGV[2] then
  return 1
end
local left = redis.call('PTTL', KEYS[2])
if record ~= ARGV[1] or left < 0 or left > tonumber(ARGV[6])
  or redis.call('STRLEN', KEYS[2]) ~= tonumber(ARGV[7]) then
  return 0
end
redis.call('SETRANGE', KEYS[2], 0, ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
