-- Give a partition of a group to the flow of a member that is recorded for it.
--
-- when full: passes
-- with: audit
-- with: book
-- with: draw
--
-- KEYS[1]  meta: {broker_epoch, mark:GROUP, ...}
-- KEYS[2]  cursor of the group: hash {member, incarnation, epoch, cursor, acked, redeliveries,
--          attempt, attempt_target, attempt_epoch, cause}
-- KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  member that binds                     ARGV[4]  its incarnation
-- ARGV[5]  number of this write under this epoch    ARGV[6]  when the group began
-- returns  the new epoch; 0 FENCED: the caller's broker epoch is over; -1 MEMBER_DIFFERS: the
--          record has another member, or none; -2 UNKNOWN: no such group; -3 SUPERSEDED: a later
--          write is stored
local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "audit")
if not meta then
  return refusal
end
local cursor = redis.call("HMGET", KEYS[2], "member", "epoch", "flushed", "born")
local verdict = judge_write(cursor[3], cursor[4], ARGV[1], ARGV[5], ARGV[6])
if verdict < 1 then
  return verdict == 0 and tonumber(cursor[2]) or verdict
end
if cursor[1] ~= ARGV[3] then
  return -1
end
local epoch = draw_above(cursor[2])
redis.call("HSET", KEYS[2], "epoch", string.format("%.0f", epoch), "incarnation", ARGV[4],
  "flushed", ARGV[1] .. ":" .. ARGV[5])
if meta[3] then
  write_audit(KEYS[1], KEYS[3], meta[3], ARGV[1], {audit_line({kind = "bind", group = ARGV[2],
    member = ARGV[3], incarnation = ARGV[4], epoch = epoch})})
end
return epoch
