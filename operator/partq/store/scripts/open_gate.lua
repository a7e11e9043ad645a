-- Let a group have the messages of a partition: it has done with those of all predecessors.
--
-- when full: passes
-- with: audit
-- with: book
-- with: gate
--
-- KEYS[1]  meta: {broker_epoch, mark:GROUP, ...}
-- KEYS[2]  cursor of the group: {cursor, gate, ...}
-- KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group    ARGV[3]  when the group began
-- ARGV[4]  the gate as the caller has read it
-- ARGV[5]  what the caller has read of the predecessors, for the audit record: "1.3:17:204", each
--          with the end of its log at the seal, and the sequence of its audit record
-- ARGV[6]  which lanes wait from now on: see write_parked
-- returns  1: open, also after a repeat; else as judge_gate: 0 FENCED, -1 GATE_DIFFERS, -2 UNKNOWN
local meta = KEYS[1]
local answer = judge_gate(meta, KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if answer then
  return answer
end
local audit, at = redis.call("HGET", meta, "audit"), redis.call("HGET", KEYS[2], "cursor")
redis.call("HSET", KEYS[2], "gate", "1")
write_parked(KEYS[2], ARGV[6])
if audit then
  write_audit(meta, KEYS[3], audit, ARGV[1],
    {audit_line({kind = "gate", group = ARGV[2], first = at, target = ARGV[5]})})
end
return 1
