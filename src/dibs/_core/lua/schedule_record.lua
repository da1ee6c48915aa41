-- schedule_record.lua: record that a fire of a schedule is over, and all fires before it.
-- KEYS[1] the last fire of the schedule: "<time in ms since the epoch> <who recorded it> …"
-- KEYS[2] the last 50 records: a sorted set, by the time of the fire; in the same slot
-- ARGV[1] time of the fire, ms   ARGV[2] who records it, how it ended, its beginning and its length
-- ARGV[3] how long both are kept, ms
-- ARGV[4] by how many ms a record may be ahead of the server's clock: beyond it is of a wrong clock
-- => the time that was there before, as a string; '' if there was none
-- Never moves a record back to an earlier fire, whenever the request arrives: a machine that was
-- stopped may record a fire when later ones are over. Only a record that is too far ahead, by the
-- clock of the server at this moment, is replaced. A repeated request adds nothing to the records; a
-- user who may not run their commands has none.
if redis.replicate_commands then
  redis.replicate_commands()
end
local value = redis.call('GET', KEYS[1])
local last = value and tonumber(string.match(value, '^%d+'))
local most = redis.call('TIME')[1] * 1000 + ARGV[4]
if not last or last < tonumber(ARGV[1]) or last > most then
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
end
if KEYS[2] then
  redis.pcall('ZADD', KEYS[2], ARGV[1], ARGV[1] .. ' ' .. ARGV[2])
  local count = redis.pcall('ZCARD', KEYS[2])
  if type(count) == 'number' and count > 50 then
    redis.pcall('ZREM', KEYS[2], redis.call('ZRANGE', KEYS[2], 0, 0)[1])
  end
  redis.pcall('PEXPIRE', KEYS[2], ARGV[3])
end
return last and string.format('%.0f', last) or ''
