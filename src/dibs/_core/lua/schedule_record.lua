-- schedule_record.lua: record that a fire of a schedule is over, and all fires before it.
-- KEYS[1] the last fire of the schedule: "<time in ms since the epoch> <who recorded it>"
-- ARGV[1] time of the fire, ms   ARGV[2] who records it   ARGV[3] how long it is kept, ms
-- ARGV[4] the greatest time that is believed, ms: a record beyond it is of a wrong clock
-- => the time that was there before, as a string; '' if there was none
-- Never moves a record that is believed back to an earlier time: a machine that was stopped may
-- record a fire when later ones are over.
local value = redis.call('GET', KEYS[1])
local last = value and tonumber(string.match(value, '^%d+'))
if not last or last < tonumber(ARGV[1]) or last > tonumber(ARGV[4]) then
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
end
return last and string.format('%.0f', last) or ''
