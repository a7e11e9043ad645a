-- Give a group its cursor in a partition. A repeat changes nothing, whatever its start.
--
-- with: audit
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- ARGV[1]  group     ARGV[2]  Earliest: from the first message in the log; Latest: from its end
-- returns  1: added; 0: it was there; -2: no such partition
local record = redis.call("HMGET", KEYS[1], "next", "trimmed", "mark:" .. ARGV[1], "audit",
  "broker_epoch")
if not record[1] then
  return -2
end
if record[3] then
  return 0
end
local start = record[1]
if ARGV[2] == "Earliest" then
  start = record[2]
end
redis.call("DEL", KEYS[2])
redis.call("HSET", KEYS[2],
  "member", "", "incarnation", "", "epoch", "0", "cursor", start, "acked", "", "redeliveries", "",
  "attempt", "0", "attempt_target", "", "attempt_epoch", "0", "cause", "0")
redis.call("HSET", KEYS[1], "mark:" .. ARGV[1], start)
if record[4] then
  write_audit(KEYS[1], KEYS[3], record[4], record[5],
    {audit_line({kind = "begin", group = ARGV[1], epoch = "0", first = "0", stop = start})})
end
return 1
