-- Give a partition of a client-assigned group to the member that registers it.
--
-- when full: passes
-- with: audit
-- with: book
-- with: draw
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  member that registers                 ARGV[4]  its incarnation
-- ARGV[5]  epoch that the member saw             ARGV[6]  offset to start at; empty: at the cursor
-- ARGV[7]  number of this write under this epoch    ARGV[8]  when the group began
-- ARGV[9]  "held": the caller takes it for the member's under another epoch, and is answered only;
--          "renewed": the member has it, and gets it under a new epoch; empty: neither
-- returns  {1, epoch, cursor, outbox}: it is the member's now, from the cursor on;
--          {0, epoch, cursor, outbox}: it was before, and nothing is written: the call is a repeat,
--          and has the answer that it had, or it asks for nothing that is not so already;
--          {-4, holder}: another member holds it; {-5}: it would be given, but the caller has said
--          "held", and knows less than the record
--          0 FENCED: the caller's broker epoch is over; -1 EPOCH_DIFFERS: another epoch is
--          recorded; -2 UNKNOWN: no such group; -3 SUPERSEDED: a later write is stored
--
-- cursor of the group, field "registered": "<epoch> <cursor> <epoch seen> <offset> <incarnation>" of
-- the call by which the member got the partition; none: it got it otherwise
local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "next", "audit", "trimmed")
if not meta then
  return refusal
end
local member, known, before, flushed, born, outbox, lowest, registered = unpack(redis.call("HMGET",
  KEYS[2], "member", "epoch", "cursor", "flushed", "born", "outbox", "outbox_lowest", "registered"))
local verdict = judge_write(flushed, born, ARGV[1], ARGV[7], ARGV[8])
if verdict == -2 then
  return -2
end
if member == ARGV[3] then
  local epoch, cursor, call = string.match(registered or "", "^(%d+) (%d+) (.*)$")
  if call == ARGV[5] .. " " .. ARGV[6] .. " " .. ARGV[4] then
    return {0, tonumber(epoch), tonumber(cursor), outbox or ""}
  end
  if ARGV[6] == "" and ARGV[9] ~= "renewed" then
    return {0, tonumber(known), tonumber(before), outbox or ""}
  end
elseif member ~= "" then
  return {-4, member}
end
if known ~= ARGV[5] then
  return -1
end
if ARGV[9] == "held" then
  return {-5}
end
if verdict < 1 then
  return -3
end
local epoch = draw_above(known)
local epoch_text = string.format("%.0f", epoch)
redis.call("HSET", KEYS[2], "member", ARGV[3], "incarnation", ARGV[4], "epoch", epoch_text,
  "cause", "0", "flushed", ARGV[1] .. ":" .. ARGV[7])
local records = {audit_line({kind = "register", group = ARGV[2], member = ARGV[3],
  incarnation = ARGV[4], epoch = epoch})}
local cursor = tonumber(before)
if ARGV[6] ~= "" then
  cursor = math.max(tonumber(meta[5]), math.min(tonumber(ARGV[6]), tonumber(meta[3])))
  redis.call("HSET", KEYS[2], "cursor", string.format("%.0f", cursor), "acked", "",
    "redeliveries", "")
  keep_held(KEYS[2])
  write_mark(KEYS[1], ARGV[2], cursor, lowest)
  table.insert(records, audit_line({kind = "reset", group = ARGV[2], epoch = epoch,
    first = cursor, stop = cursor, number = before}))
end
redis.call("HSET", KEYS[2], "registered", string.format("%s %.0f %s %s %s", epoch_text, cursor,
  ARGV[5], ARGV[6], ARGV[4]))
if meta[4] then
  write_audit(KEYS[1], KEYS[3], meta[4], ARGV[1], records)
end
return {1, epoch, cursor, outbox or ""}
