-- Store how far a group has come in a partition: the broker's whole state, written as it is.
--
-- when full: passes
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group    ARGV[3]  cursor (offset)
-- ARGV[4]  acknowledged ranges above it          ARGV[5]  redelivery counts
-- returns  1; 0: the caller's broker epoch is over, or the log has lost messages that the caller
--          speaks of; -2: no such group

-- The highest offset that the caller speaks of: the cursor, or the end of the last range.
local last_end = string.match(string.sub(ARGV[4], -20), "(%d+)$")
local highest = tonumber(last_end or ARGV[3])
local meta = redis.call("HMGET", KEYS[1], "broker_epoch", "next", "mark:" .. ARGV[2])
if meta[1] ~= ARGV[1] or highest > tonumber(meta[2]) then
  return 0
end
if not meta[3] then
  return -2
end
redis.call("HSET", KEYS[2], "cursor", ARGV[3], "acked", ARGV[4], "redeliveries", ARGV[5])
-- What waits in the outbox holds the log, too.
local lowest = tonumber(redis.call("HGET", KEYS[2], "outbox_lowest") or "") or math.huge
redis.call("HSET", KEYS[1], "mark:" .. ARGV[2],
  string.format("%.0f", math.min(tonumber(ARGV[3]), lowest)))
return 1
