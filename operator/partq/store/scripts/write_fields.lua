-- Set fields of a hash that is a plan or an index, and remove others, in one step.
--
-- when full: passes
--
-- KEYS[1]  the hash
-- ARGV[1]  number of fields to set    ARGV[2...]  field, value, ... and then the fields to remove
-- returns  1
local last = 1 + 2 * tonumber(ARGV[1])
for i = 2, last, 2 do
  redis.call("HSET", KEYS[1], ARGV[i], ARGV[i + 1])
end
for i = last + 1, #ARGV do
  redis.call("HDEL", KEYS[1], ARGV[i])
end
return 1
