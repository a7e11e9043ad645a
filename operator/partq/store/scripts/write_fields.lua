-- Set fields of a hash that is a plan or an index, and remove others, in one step.
--
-- when full: passes
-- with: term
--
-- KEYS[1]  the hash    KEYS[2]  (of a group's hash) config of the group
-- ARGV[1]  number of fields to set    ARGV[2...]  field, value, ... and then the fields to remove;
--          at the end, of a group's hash, the term of the coordinator that writes; empty: none
-- returns  1; 0: the group is not recorded; -1: the term is over; nothing is written for both
local stop = #ARGV
if KEYS[2] then
  local verdict = judge_term(KEYS[2], ARGV[stop])
  if verdict < 1 then
    return verdict
  end
  stop = stop - 1
end
local last = 1 + 2 * tonumber(ARGV[1])
for i = 2, last, 2 do
  redis.call("HSET", KEYS[1], ARGV[i], ARGV[i + 1])
end
for i = last + 1, stop do
  redis.call("HDEL", KEYS[1], ARGV[i])
end
return 1
