-- Remove a group from a partition: its cursor, and its hold on the log.
--
-- when full: passes
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group
-- ARGV[1]  group
-- returns  1: removed; 0: it was not there
redis.call("DEL", KEYS[2])
return redis.call("HDEL", KEYS[1], "mark:" .. ARGV[1])
