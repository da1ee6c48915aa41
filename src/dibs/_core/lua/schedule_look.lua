-- schedule_look.lua: which run of a schedule was the last one, and what time it is.
-- KEYS[1] the last run of the schedule: "<time in ms since the epoch> <who recorded it>"
-- ARGV[1] and others: none
-- => {record, ms}   the record, false (nil) if there is none; the server's clock, ms since the epoch
-- Never changes anything.
local time = redis.call('TIME')
return {redis.call('GET', KEYS[1]), time[1] * 1000 + math.floor(time[2] / 1000)}
