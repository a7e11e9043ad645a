-- Let a group have the messages of a partition: it has done with those of all predecessors.
--
-- when full: passes
-- with: audit
-- with: book
--
-- The caller reads the predecessors first, one by one, so this call may be late: the group may have
-- been reset since, or be another one of the same name. It names the gate and the group that it
-- has read, and changes nothing where they differ.
--
-- KEYS[1]  meta: {broker_epoch, mark:GROUP, ...}
-- KEYS[2]  cursor of the group: {born, gate, ...}; gate "0": closed, "R@G": held by a reset; "1", or
--          none: open
-- KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group    ARGV[3]  when the group began
-- ARGV[4]  the gate as the caller has read it
-- ARGV[5]  what the caller has read of the predecessors, for the audit record: "1.3:17:204", each
--          with the end of its log at the seal, and the sequence of its audit record
-- ARGV[6]  which lanes wait from now on: see write_parked
-- returns  1: open, also after a repeat
--          0 FENCED: the caller's broker epoch is over
--          -1 GATE_DIFFERS: the gate is held by a reset that the caller has not seen
--          -2 UNKNOWN: no such group
local meta = KEYS[1]
local epoch, mark, audit = unpack(redis.call("HMGET", meta,
  "broker_epoch", "mark:" .. ARGV[2], "audit"))
if epoch ~= ARGV[1] then
  return 0
end
local born, gate, at = unpack(redis.call("HMGET", KEYS[2], "born", "gate", "cursor"))
if not mark or (born or "0") ~= ARGV[3] then
  return -2
end
if not gate or gate == "1" then
  return 1
end
if gate ~= ARGV[4] then
  return -1
end
redis.call("HSET", KEYS[2], "gate", "1")
write_parked(KEYS[2], ARGV[6])
if audit then
  write_audit(meta, KEYS[3], audit, ARGV[1],
    {audit_line({kind = "gate", group = ARGV[2], first = at, target = ARGV[5]})})
end
return 1
