-- stream_invalidate.lua: forget a stream; a run that is under way is not kept.
-- KEYS[1] the record of the stream   (no ARGV[1])
-- => the record that was there; '': none   0 the key is something else: a lease, a claim, a cached value
-- The items stay for those who follow. Never touches a lease, a claim or a value.
local record = redis.call('GET', KEYS[1])
if not record then
  return ''
end
if string.sub(record, 1, 13) ~= 'dibs1 stream ' then
  return 0
end
redis.call('DEL', KEYS[1])
return record
