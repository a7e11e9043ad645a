-- Take a message out of a group's outbox: its target has stored it, or it is nowhere. A repeat
-- changes nothing.
--
-- when full: passes
-- with: audit
-- with: book
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  number of the message. What is stored of the group's acknowledgements covers it.
-- ARGV[4]  number of this write under this epoch    ARGV[5]  when the group began
-- ARGV[6]  1: the log does not hold the message, and nobody can send it; 0: its target has stored it
-- returns  1; 0 FENCED: the caller's broker epoch is over; -2 UNKNOWN: no such group;
--          -3 SUPERSEDED: a later write is stored
local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "audit")
if not meta then
  return refusal
end
local cursor = redis.call("HMGET", KEYS[2], "cursor", "outbox", "flushed", "born")
local verdict = judge_write(cursor[3], cursor[4], ARGV[1], ARGV[4], ARGV[5])
if verdict < 1 then
  return verdict == 0 and 1 or verdict
end
local kept, lowest, removed = {}, nil, nil
for entry, number, offset in string.gmatch(cursor[2] or "", "((%d+):(%d+):%d+:%d+)") do
  if number ~= ARGV[3] then
    table.insert(kept, entry)
    lowest = math.min(lowest or math.huge, tonumber(offset))
  else
    removed = offset
  end
end
redis.call("HSET", KEYS[2], "outbox", table.concat(kept, ","),
  "outbox_lowest", lowest and string.format("%.0f", lowest) or "",
  "flushed", ARGV[1] .. ":" .. ARGV[4])
redis.call("HDEL", KEYS[2], "note:" .. ARGV[3])
write_mark(KEYS[1], ARGV[2], cursor[1], lowest)
if meta[3] and removed then
  local is_lost = ARGV[6] == "1"
  write_audit(KEYS[1], KEYS[3], meta[3], ARGV[1], {audit_line({kind = "dead_letter",
    group = ARGV[2], first = removed, stop = removed + 1, number = ARGV[3],
    cause = is_lost and "not_in_log" or "", flags = is_lost and "lost" or "sent"})})
end
return 1
