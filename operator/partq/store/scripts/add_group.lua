-- Give a group its cursor in a partition. A repeat changes nothing, whatever its start.
--
-- Where the partition has predecessors its gate is closed: the group gets no messages before it has
-- done with those of the predecessors.
--
-- When it began is drawn like an epoch, above all numbers of the groups that were removed here:
-- what speaks of an earlier group of the name is refused, and its epochs and dead letters have
-- higher numbers than those of that one, whatever Redis's clock shows by now.
--
-- when full: passes
-- with: audit
-- with: draw
-- with: times
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- KEYS[4]  log
-- ARGV[1]  group     ARGV[2]  Earliest: from the first message in the log; Latest: from its end;
--          a number: from the first message that was appended then or later, in ms of Redis's clock
-- ARGV[3]  the fence that stood before the caller learned that the group is wanted; empty: whatever
--          it is
-- returns  1: added; 0: it was there; -1 FENCE_DIFFERS: another fence stands, as groups may have
--          been removed since; -2 UNKNOWN: no such partition
local record = redis.call("HMGET", KEYS[1], "next", "trimmed", "mark:" .. ARGV[1], "audit",
  "broker_epoch", "born", "groups_fence", "preds")
if not record[1] then
  return -2
end
if record[3] then
  return 0
end
if ARGV[3] ~= "" and ARGV[3] ~= (record[7] or "0") then
  return -1
end
local start = record[1]
if ARGV[2] == "Earliest" then
  start = record[2]
elseif ARGV[2] ~= "Latest" then
  start = string.format("%.0f", find_time(KEYS[4], record[2], record[1], tonumber(ARGV[2])))
end
local born = string.format("%.0f", draw_above(record[6]))
redis.call("DEL", KEYS[2])
redis.call("HSET", KEYS[2], "born", born,
  "member", "", "incarnation", "", "epoch", born, "cursor", start, "acked", "", "redeliveries", "",
  "attempt", "0", "attempt_target", "", "attempt_epoch", "0", "cause", "0", "outbox_number", born)
if record[8] then
  redis.call("HSET", KEYS[2], "gate", "0")
end
redis.call("HSET", KEYS[1], "born", born, "mark:" .. ARGV[1], start)
if record[4] then
  write_audit(KEYS[1], KEYS[3], record[4], record[5],
    {audit_line({kind = "begin", group = ARGV[1], epoch = born, first = "0", stop = start})})
end
return 1
