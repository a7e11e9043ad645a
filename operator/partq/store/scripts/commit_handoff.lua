-- End a handoff: the group's partition passes from one member to another, with all acks so far.
-- Which lanes of the group wait stays as it is stored.
--
-- when full: passes
-- with: audit
-- with: book
-- with: draw
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  source member, or empty               ARGV[4]  epoch of the source
-- ARGV[5]  attempt                               ARGV[6]  target member, or empty
-- ARGV[7]  cause (number)                        ARGV[8]  cursor (offset)
-- ARGV[9]  what is acknowledged above it, as text or bits: see acks.lua
-- ARGV[10]  redelivery counts
-- ARGV[11]  why it was forced, for the audit record; empty: it was not
-- ARGV[12]  number of this write under this epoch    ARGV[13]  when the group began
-- ARGV[14]  the highest offset that the caller speaks of, excluded
-- returns  the new epoch, and the same again for a repeat of a commit that went through
--          0 FENCED: the caller's broker epoch is over, or the log does not hold what the caller
--          speaks of; -1 HANDOFF_DIFFERS: another member or epoch is recorded, or the attempt is
--          closed; -2 UNKNOWN: no such group; -3 SUPERSEDED: a later write is stored

local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "next", "audit", "trimmed")
if not meta then
  return refusal
end
local cursor = redis.call("HMGET", KEYS[2],
  "member", "epoch", "attempt", "attempt_target", "attempt_epoch", "outbox_lowest", "flushed",
  "born")
local verdict = judge_write(cursor[7], cursor[8], ARGV[1], ARGV[12], ARGV[13])
if verdict == -2 then
  return -2
end
if cursor[3] == ARGV[5] and cursor[4] == ARGV[6] then
  return tonumber(cursor[5])
end
if cursor[1] ~= ARGV[3] or cursor[2] ~= ARGV[4] or tonumber(ARGV[5]) <= tonumber(cursor[3]) then
  return -1
end
if tonumber(ARGV[14]) > tonumber(meta[3]) or tonumber(ARGV[8]) < tonumber(meta[5]) then
  return 0
end
if verdict < 1 then
  return -3
end
local epoch = draw_above(cursor[2])
local epoch_text = string.format("%.0f", epoch)
redis.call("HSET", KEYS[2],
  "member", ARGV[6], "incarnation", "", "epoch", epoch_text, "cause", ARGV[7],
  "attempt", ARGV[5], "attempt_target", ARGV[6], "attempt_epoch", epoch_text,
  "cursor", ARGV[8], "acked", ARGV[9], "redeliveries", ARGV[10],
  "flushed", ARGV[1] .. ":" .. ARGV[12])
redis.call("HDEL", KEYS[2], "registered") -- its next member did not register it
write_mark(KEYS[1], ARGV[2], ARGV[8], cursor[6])
if meta[4] then
  write_audit(KEYS[1], KEYS[3], meta[4], ARGV[1], {audit_line({kind = "commit", group = ARGV[2],
    member = ARGV[3], epoch = epoch, attempt = ARGV[5], cause = ARGV[11], target = ARGV[6]})})
end
return epoch
