-- job_fetch.lua: name the worker that has fetched the message of a job which waits.
-- KEYS[1] the key of the job
-- ARGV[1] the secret in its message   ARGV[2] the worker, in place of the holder
-- ARGV[3] in milliseconds, how long the key is kept at least
-- => 1 named        0 it does not wait with that secret (any more)
-- Never takes a free key, never touches another job's or one that runs, and never shortens a life.
local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
local secret, middle, rest = string.match(value, '^([^ @]+)([^@]*)@[^\n]*(.*)$')
if not secret or string.match(secret, '^[^~]*') ~= ARGV[1] then
  return 0
end
local ms = math.max(tonumber(ARGV[3]), redis.call('PTTL', KEYS[1]))
redis.call('SET', KEYS[1], secret .. middle .. '@' .. ARGV[2] .. rest, 'PX', string.format('%.0f', ms))
return 1
