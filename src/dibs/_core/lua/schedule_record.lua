-- schedule_record.lua: record that a run, and all before it, is over, then end its lease.
-- KEYS[1] the last run of the schedule: "<time in ms since the epoch> <who recorded it> …"
-- KEYS[2] the last 50 records: a sorted set, by the time of the run   KEYS[3] the lease
-- ARGV[1] time of the run, ms   ARGV[2] who records it, how it ended, its beginning and its length
-- ARGV[3] how long both records are kept, ms
-- ARGV[4] by how many ms a record may be ahead of the server's clock: beyond it is of a wrong clock
-- ARGV[5] token of the lease, '' for none   ARGV[6] how long the lease is still kept, ms; 0: deleted
-- => 1 the lease has ended   0 it was not (or no longer) yours; the run is recorded all the same
-- Never moves a record back to an earlier run, whenever the request arrives: a machine that was
-- stopped may record a run when later ones are over. Only a record that is too far ahead, by the
-- clock of the server at this moment, is replaced. A repeated request adds nothing to the records; a
-- user who may not run their commands has none. Never ends the lease of a run that could not be
-- recorded, and never touches another holder's.
if redis.replicate_commands then
  redis.replicate_commands()
end
local value = redis.call('GET', KEYS[1])
local last = value and tonumber(string.match(value, '^%d+'))
local most = redis.call('TIME')[1] * 1000 + ARGV[4]
if not last or last < tonumber(ARGV[1]) or last > most then
  redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2], 'PX', ARGV[3])
end
redis.pcall('ZADD', KEYS[2], ARGV[1], ARGV[1] .. ' ' .. ARGV[2])
local count = redis.pcall('ZCARD', KEYS[2])
if type(count) == 'number' and count > 50 then
  redis.pcall('ZREM', KEYS[2], redis.call('ZRANGE', KEYS[2], 0, 0)[1])
end
redis.pcall('PEXPIRE', KEYS[2], ARGV[3])
if redis.call('GET', KEYS[3]) ~= ARGV[5] then
  return 0
end
return redis.call('PEXPIRE', KEYS[3], ARGV[6])
