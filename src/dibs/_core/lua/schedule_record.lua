-- schedule_record.lua: record that a fire of a schedule is over, and all fires before it.
-- KEYS[1] the last fire of the schedule: "<time in ms since the epoch> <who recorded it>"
-- ARGV[1] time of the fire, ms   ARGV[2] who records it   ARGV[3] how long it is kept, ms
-- ARGV[4] by how many ms a record may be ahead of the server's clock: beyond it is of a wrong clock
-- => the time that was there before, as a string; '' if there was none
-- Never moves a record back to an earlier fire, whenever the request arrives: a machine that was
-- stopped may record a fire when later ones are over. Only a record that is too far ahead, by the
-- clock of the server at this moment, is replaced.
if redis.replicate_commands then
  redis.replicate_commands()
end
local value = redis.call('GET', KEYS[1])
local last = value and tonumber(string.match(value, '^%d+'))
local most = redis.call('TIME')[1] * 1000 + ARGV[4]
if not last or last < tonumber(ARGV[1]) or last > most then
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
end
return last and string.format('%.0f', last) or ''
