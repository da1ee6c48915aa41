-- stream_leave.lua: a run is given up before its end: those who follow it are not to wait.
-- KEYS[1] the items   KEYS[2] the record of the stream, in the same slot
-- ARGV[1] the attempt   ARGV[2] its record
-- => 1 its items are gone   0 there were none of this attempt, or it has ended
-- Never touches a run that has ended, nor the record or the items of another attempt.
if redis.call('GET', KEYS[2]) == ARGV[2] then
  redis.call('DEL', KEYS[2])
end
if redis.call('GETRANGE', KEYS[1], 0, 32) ~= 'dibs1 items live ' .. ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
