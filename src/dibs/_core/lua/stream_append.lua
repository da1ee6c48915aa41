-- stream_append.lua: add to the items of a run; without data, only say that its process is alive.
-- KEYS[1] the items: "dibs1 items live <attempt> <count> <from>\n", 56 bytes, and what was yielded
-- ARGV[1] the attempt   ARGV[2] where the data belongs, in bytes behind the head
-- ARGV[3] how many items there are with it, in ten digits   ARGV[4] the life of the items from now on, in ms
-- ARGV[5] the data
-- => how many bytes there are now behind the head: less than ARGV[2]: what is before the data is lost
--    (a replica without it has taken over), nothing was added, send it again from there
-- => -1 not added: the run has ended, is continued by another attempt, or its items are gone
-- What is there already is not added again: a repeated request, or a late copy of it, changes nothing.
-- Never touches the items of another attempt.
if redis.call('GETRANGE', KEYS[1], 0, 32) ~= 'dibs1 items live ' .. ARGV[1] then
  return -1
end
local size = redis.call('STRLEN', KEYS[1]) - 56
local known = size - tonumber(ARGV[2])
if known < 0 then
  return size
end
if known < #ARGV[5] then
  redis.call('SETRANGE', KEYS[1], 56 + size, string.sub(ARGV[5], known + 1))
  redis.call('SETRANGE', KEYS[1], 34, ARGV[3])
  size = size + #ARGV[5] - known
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return size
