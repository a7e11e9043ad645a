-- Go on as the owner of a partition after a lease that was over: claims decided before are refused.
--
-- when full: passes
--
-- KEYS[1]  meta
-- ARGV[1]  broker epoch that the caller holds
-- returns  1; 0: the caller's broker epoch is over
local record = redis.call("HMGET", KEYS[1], "broker_epoch", "affirmed")
if record[1] ~= ARGV[1] then
  return 0
end
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("HSET", KEYS[1],
  "affirmed", string.format("%.0f", math.max(tonumber(record[2] or "0") + 1, now_ms)))
return 1
