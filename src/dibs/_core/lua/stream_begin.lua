-- stream_begin.lua: begin a run of a stream, unless there is one.
-- KEYS[1] the record of the stream   KEYS[2] the items of the new run   KEYS[3] those of the run before it
--         (KEYS[2] again: there is none), all in one slot
-- ARGV[1] the new record   ARGV[2] its life in ms   ARGV[3] the head of the new items   ARGV[4] their life in ms
-- ARGV[5] the record that counts as none; ''
-- ARGV[6] it does only if its items live no longer than this, in ms; '': in any case
-- => {1, record}  the run is ours (also: this request was executed before)
-- => {0, record}  there is another one, under way or done
-- => {-1, ''}     the key is something else: a lease, a claim, a cached value
-- A repeated request changes nothing: a run that was forgotten meanwhile goes on, and is not kept. Never touches a lease, a claim, a value, or the items of another run.
local record = redis.call('GET', KEYS[1])
if record == ARGV[1] then
  return {1, record}
end
if record and string.sub(record, 1, 13) ~= 'dibs1 stream ' then
  return {-1, ''}
end
if record and (record ~= ARGV[5]
  or (ARGV[6] ~= '' and redis.call('PTTL', KEYS[3]) > tonumber(ARGV[6]))) then
  return {0, record}
end
if redis.call('STRLEN', KEYS[2]) > 0 then
  return {1, ARGV[1]}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
return {1, ARGV[1]}
