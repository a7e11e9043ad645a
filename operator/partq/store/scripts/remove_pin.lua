-- Let go of what a pin holds.
--
-- when full: passes
--
-- KEYS[1]  meta
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  name
-- returns  1; 0: the caller's broker epoch is over
if redis.call("HGET", KEYS[1], "broker_epoch") ~= ARGV[1] then
  return 0
end
redis.call("HDEL", KEYS[1], "pin:" .. ARGV[2])
return 1
