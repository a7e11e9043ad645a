-- Move a group's cursor in a partition, back or forward; every older token is over with it.
--
-- when full: passes
-- with: audit
-- with: book
-- with: draw
-- with: resets
-- with: states
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- KEYS[4]  states of the group
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  epoch that the caller knows           ARGV[4]  offset at which the group is to begin
-- ARGV[5]  number of this write under this epoch    ARGV[6]  when the group began
-- ARGV[7]  id of a reset of all partitions, "MS-NAME@G": begun at this Redis time, by the layout of
--          generation G; empty: of this partition alone
-- ARGV[8]  clear: the states of keys are removed; none: it is refused where there are any; keep
-- returns  {new epoch, cursor, outbox, gate}: the offset, or the nearest one that the log has; the
--          dead letters that wait, which stay; "1": the group gets messages
--          0 FENCED: the caller's broker epoch is over; -1 EPOCH_DIFFERS: another epoch is
--          recorded; -2 UNKNOWN: no such group; -3 SUPERSEDED: a later write is stored;
--          -4 SEALED_LATER: a later change of the layout has taken slots away;
--          -6 RESET_OVER: the owner of a successor has ended the reset, see `end_reset`; or a
--          later one has moved the cursor since
--          -7 STATES_KEPT: there are states of keys, and the call wants none

local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "next", "audit", "trimmed", "preds", "layout")
if not meta then
  return refusal
end
local known, lowest, before, flushed, outbox, born, gate, last = unpack(redis.call("HMGET",
  KEYS[2], "epoch", "outbox_lowest", "cursor", "flushed", "outbox", "born", "gate", "reset"))
gate = gate or "1"
local verdict = judge_write(flushed, born, ARGV[1], ARGV[5], ARGV[6])
if verdict < 1 then
  return verdict == 0 and {tonumber(known), tonumber(before), outbox or "", gate} or verdict
end
if known ~= ARGV[3] then
  return -1
end
local generation = string.match(ARGV[7], "@(%d+)$")
if generation then
  if tonumber(meta[7] or "1") > tonumber(generation) then
    -- The successor that the caller does not know might deliver before what is repeated here.
    return -4
  end
  if is_over(KEYS[2], ARGV[7]) then
    return -6
  end
end
if ARGV[8] == "none" and redis.call("HLEN", KEYS[4]) > 0 then
  return -7
end
local cursor = math.max(tonumber(meta[5]), math.min(tonumber(ARGV[4]), tonumber(meta[3])))
local cursor_text = string.format("%.0f", cursor)
local epoch = draw_above(known)
redis.call("HSET", KEYS[2], "epoch", string.format("%.0f", epoch),
  "cursor", cursor_text, "acked", "", "redeliveries", "", "flushed", ARGV[1] .. ":" .. ARGV[5])
keep_held(KEYS[2])
if ARGV[8] == "clear" then
  clear_states(KEYS[1], KEYS[2], KEYS[4])
end
if generation then
  if last and last ~= ARGV[7] then
    -- A late repeat of its step would move the cursor back, below what successors have delivered.
    end_reset(KEYS[2], last)
  end
  redis.call("HSET", KEYS[2], "reset", ARGV[7])
  if meta[6] then
    gate = ARGV[7]
    redis.call("HSET", KEYS[2], "gate", gate)
  end
end
local flags = generation and meta[6] and "held" or ""
write_mark(KEYS[1], ARGV[2], cursor, lowest)
if meta[4] then
  write_audit(KEYS[1], KEYS[3], meta[4], ARGV[1], {audit_line({kind = "reset", group = ARGV[2],
    epoch = epoch, first = cursor, stop = cursor, number = before, flags = flags})})
end
return {epoch, cursor, outbox or "", gate}
