-- Go on as the owner of a partition after a lease that was over: claims decided before are refused.
--
-- when full: passes
-- with: draw
--
-- KEYS[1]  meta
-- ARGV[1]  broker epoch that the caller holds
-- returns  1; 0 FENCED: the caller's broker epoch is over
local record = redis.call("HMGET", KEYS[1], "broker_epoch", "affirmed")
if record[1] ~= ARGV[1] then
  return 0
end
redis.call("HSET", KEYS[1],
  "affirmed", string.format("%.0f", draw_above(record[2])))
return 1
