-- Give a field of a hash its value, unless it has one.
--
-- when full: passes
--
-- KEYS[1]  the hash
-- ARGV[1]  field    ARGV[2]  value
-- returns  the value that it has now
redis.call("HSETNX", KEYS[1], ARGV[1], ARGV[2])
return redis.call("HGET", KEYS[1], ARGV[1])
