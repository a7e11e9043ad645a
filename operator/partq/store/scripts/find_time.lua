-- Find where in a partition's log the messages of a time begin.
--
-- with: times
--
-- KEYS[1]  meta      KEYS[2]  log
-- ARGV[1]  time of appending, in ms of Redis's clock
-- returns  the offset of the first message that was appended then or later; none: the log's end
local record = redis.call("HMGET", KEYS[1], "next", "trimmed")
return find_time(KEYS[2], record[2], record[1], tonumber(ARGV[1]))
