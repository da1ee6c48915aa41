-- job_wait.lua: let a job wait for its turn, behind the others with its key that wait.
-- KEYS[1] those that wait, a sorted set: the lowest score, the ticket, is the next one
-- ARGV[1] the job   ARGV[2] the ticket that it has had before; 0: it gets one, of µs of the server's
--         clock, higher than that of the last one
-- => its ticket, as text; also: it waits already, or another one has that ticket
-- Never removes a job, and never changes the order of two.
if redis.replicate_commands then
  redis.replicate_commands()
end
local had = redis.call('ZSCORE', KEYS[1], ARGV[1])
if had then
  return string.format('%.0f', tonumber(had))
end
local ticket = tonumber(ARGV[2])
if ticket > 0 then
  if redis.call('ZCOUNT', KEYS[1], ARGV[2], ARGV[2]) > 0 then
    return ARGV[2]
  end
else
  local time = redis.call('TIME')
  local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  ticket = math.max(time[1] * 1000000 + time[2], (tonumber(last[2]) or 0) + 1)
end
local text = string.format('%.0f', ticket)
redis.call('ZADD', KEYS[1], text, ARGV[1])
return text
