-- Remove a group from a partition: its cursor, and its hold on the log. What it has drawn stays as a
-- floor for the groups that are made later.
--
-- when full: passes
-- with: audit
-- with: states
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- KEYS[4]  states of the group
-- ARGV[1]  group    ARGV[2]  when it began; 0: an earlier version made it, or it has no cursor
-- returns  1: removed; 0: it was not there, or another one has its name by now
local born, epoch, letter = unpack(redis.call("HMGET", KEYS[2], "born", "epoch", "outbox_number"))
if (born or "0") ~= ARGV[2] then
  return 0
end
clear_states(KEYS[1], KEYS[2], KEYS[4])
redis.call("DEL", KEYS[2])
local removed = redis.call("HDEL", KEYS[1], "mark:" .. ARGV[1])
local audit, broker_epoch, last =
  unpack(redis.call("HMGET", KEYS[1], "audit", "broker_epoch", "born"))
if epoch then
  local highest = math.max(tonumber(last or "0"), tonumber(epoch), tonumber(letter or "0"))
  redis.call("HSET", KEYS[1], "born", string.format("%.0f", highest))
end
if audit and removed == 1 then
  write_audit(KEYS[1], KEYS[3], audit, broker_epoch,
    {audit_line({kind = "end", group = ARGV[1]})})
end
return removed
