-- Set fields of a hash that is a plan or an index, and remove others, in one step.
--
-- when full: passes
--
-- KEYS[1]  the hash    KEYS[2]  (of a group's hash) config of the group
-- ARGV[1]  number of fields to set    ARGV[2...]  field, value, ... and then the fields to remove
-- returns  1; 0: the group is not on record, nothing is written
if KEYS[2] and redis.call("EXISTS", KEYS[2]) == 0 then
  return 0
end
local last = 1 + 2 * tonumber(ARGV[1])
for i = 2, last, 2 do
  redis.call("HSET", KEYS[1], ARGV[i], ARGV[i + 1])
end
for i = last + 1, #ARGV do
  redis.call("HDEL", KEYS[1], ARGV[i])
end
return 1
