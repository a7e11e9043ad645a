-- Add a hint to the capped stream of events.
--
-- KEYS[1]  events: stream
-- ARGV[1]  about how many events are kept    ARGV[2...]  field, value, ...
-- returns  the entry's id
return redis.call("XADD", KEYS[1], "MAXLEN", "~", ARGV[1], "*", unpack(ARGV, 2))
