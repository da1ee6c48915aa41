-- wait_note.lua: note that a process waits for a key, for people who look.
-- KEYS[1] who waits: a sorted set, "<client>@<host>:<process> <since, ms>" → when the note expires,
--         in ms of the server's clock; in the slot of the key that is waited for
-- ARGV[1] the note   ARGV[2] how long it is kept, ms   ARGV[3] how many notes there may be
-- => 1 noted   0 not noted: there are too many
-- Removes notes that have expired; the key expires with the last of them. Nothing is decided by it.
-- Never touches the key that is waited for.
if redis.replicate_commands then
  redis.replicate_commands()
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3])
  and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
