-- Remove a group from a partition: its cursor, and its hold on the log.
--
-- when full: passes
-- with: audit
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- ARGV[1]  group    ARGV[2]  when it began; 0: an earlier version made it, or it has no cursor
-- returns  1: removed; 0: it was not there, or another one has its name by now
if (redis.call("HGET", KEYS[2], "born") or "0") ~= ARGV[2] then
  return 0
end
redis.call("DEL", KEYS[2])
local removed = redis.call("HDEL", KEYS[1], "mark:" .. ARGV[1])
local audit, broker_epoch = unpack(redis.call("HMGET", KEYS[1], "audit", "broker_epoch"))
if audit and removed == 1 then
  write_audit(KEYS[1], KEYS[3], audit, broker_epoch,
    {audit_line({kind = "end", group = ARGV[1]})})
end
return removed
