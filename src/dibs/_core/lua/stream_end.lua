-- stream_end.lua: a run is over: add the rest of its items, and keep them if the stream is still this run.
-- KEYS[1] the items   KEYS[2] the record of the stream, in the same slot
-- ARGV[1] the attempt   ARGV[2] where the rest belongs   ARGV[3] how many items there are, in ten digits
-- ARGV[4] the rest, with the mark of the end
-- ARGV[5] the record while the run was under way   ARGV[6] the record that it leaves; '': none, it is not kept
-- ARGV[7] the life of the record in ms   ARGV[8] that of the items with it   ARGV[9] that of the items without
-- => {1, bytes}  over, and what it leaves is left (by this request, or by an earlier copy of it)
-- => {0, bytes}  over, and not kept: it was invalidated, or another run has begun
-- => {2, bytes}  not over: what is before the rest is lost, send it again from there
-- => {-1, 0}     continued by another attempt, or gone
-- Items that are not kept stay a while for those who follow. Never touches the record of another run.
local head = redis.call('GETRANGE', KEYS[1], 0, 32)
if head == 'dibs1 items over ' .. ARGV[1] then
  local is_kept = ARGV[6] == '' or redis.call('GET', KEYS[2]) == ARGV[6]
  return {is_kept and 1 or 0, redis.call('STRLEN', KEYS[1]) - 56}
end
if head ~= 'dibs1 items live ' .. ARGV[1] then
  return {-1, 0}
end
local size = redis.call('STRLEN', KEYS[1]) - 56
local known = size - tonumber(ARGV[2])
if known < 0 then
  return {2, size}
end
redis.call('SETRANGE', KEYS[1], 56 + size, string.sub(ARGV[4], known + 1))
redis.call('SETRANGE', KEYS[1], 34, ARGV[3])
redis.call('SETRANGE', KEYS[1], 12, 'over')
size = size + #ARGV[4] - known
local is_ours = redis.call('GET', KEYS[2]) == ARGV[5]
if is_ours and ARGV[6] ~= '' then
  redis.call('SET', KEYS[2], ARGV[6], 'PX', ARGV[7])
  redis.call('PEXPIRE', KEYS[1], ARGV[8])
  return {1, size}
end
if is_ours then
  redis.call('DEL', KEYS[2])
end
redis.call('PEXPIRE', KEYS[1], ARGV[9])
return {ARGV[6] == '' and 1 or 0, size}
