-- Remove the keys of a partition that its queue has no more. What it knows of producers stays for a
-- while: their messages are still found to be repeats.
--
-- when full: passes
--
-- KEYS[1]  meta    KEYS[2]  producers    KEYS[3]  series
-- KEYS[4...]  the rest: some hundreds at most, as they are unpacked
-- ARGV[1]  how long producers and series stay, in ms
-- returns  how many keys were removed
redis.call("PEXPIRE", KEYS[2], ARGV[1])
redis.call("PEXPIRE", KEYS[3], ARGV[1])
return redis.call("UNLINK", KEYS[1], unpack(KEYS, 4))
