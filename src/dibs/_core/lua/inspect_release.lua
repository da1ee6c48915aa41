-- inspect_release.lua: delete a key that a person wants freed, if the same holding is still there.
-- KEYS[1] the key   ARGV[1] how its value begins: the secret and the character behind it
-- => 1 deleted   0 the key has another value, or none
-- Never deletes a value that begins otherwise, and reads no more of it than is compared.
if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
