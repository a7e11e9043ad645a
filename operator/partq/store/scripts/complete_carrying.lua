-- Record that a partition has all entries that its predecessors had for it.
--
-- when full: passes
--
-- KEYS[1]  meta    ARGV[1]  broker epoch that the caller holds    ARGV[2]  the field that says it
-- returns  1
--          0 FENCED: the caller's broker epoch is over
if redis.call("HGET", KEYS[1], "broker_epoch") ~= ARGV[1] then
  return 0
end
redis.call("HSET", KEYS[1], ARGV[2], "1")
return 1
