-- Put messages of a group into its outbox: they block its deliveries no more, and hold the log.
--
-- when full: passes
-- with: audit
-- with: book
-- with: draw
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  number of this write under this epoch    ARGV[4]  when the group began
-- ARGV[5...]  of each message: offset, reason (number), how often its delivery failed because of
--             itself; the reason 3 is stored as 1, for brokers that do not know it
-- returns  the outbox afterwards, "<number>:<offset>:<reason>:<count>,..." by rising numbers; an
--          offset that was in it already keeps its number, and one that the stored book has done
--          with is left out, so a repeat changes nothing
--          0 FENCED: the caller's broker epoch is over, or the log does not hold what the caller
--          speaks of; -2 UNKNOWN: no such group; -3 SUPERSEDED: a later write is stored
local REASONS = {["1"] = "maxRedeliveries", ["2"] = "expired", ["3"] = "undecodable"}

local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "next", "audit", "trimmed")
if not meta then
  return refusal
end
local cursor = redis.call("HMGET", KEYS[2], "outbox", "outbox_number", "outbox_lowest", "flushed",
  "cursor", "acked", "born")
local verdict = judge_write(cursor[4], cursor[7], ARGV[1], ARGV[3], ARGV[4])
if verdict < 1 then
  return verdict == 0 and (cursor[1] or "") or verdict
end
local entries, held, records = {}, {}, {}
for entry, offset in string.gmatch(cursor[1] or "", "(%d+:(%d+):%d+:%d+)") do
  table.insert(entries, entry)
  held[offset] = true
end

-- Numbers are drawn like epochs: none is ever used twice, whatever Redis forgot. The target takes
-- a number below its last one for a repeat.
local number = draw_above(cursor[2])
local lowest = tonumber(cursor[3] or "") or math.huge
for i = 5, #ARGV, 3 do
  if not REASONS[ARGV[i + 1]] then
    return redis.error_reply("ERR reason " .. ARGV[i + 1] .. ", expected one of 1 to 3")
  end
  if tonumber(ARGV[i]) >= tonumber(meta[3]) then
    return 0
  end
  if not held[ARGV[i]] and not is_done(cursor[5], cursor[6], ARGV[i]) then
    if tonumber(ARGV[i]) < tonumber(meta[5]) then
      return 0
    end
    held[ARGV[i]] = true
    table.insert(entries,
      string.format("%.0f:%s:%s:%s", number, ARGV[i], ARGV[i + 1] == "3" and "1" or ARGV[i + 1],
        ARGV[i + 2]))
    if meta[4] then
      table.insert(records, audit_line({kind = "dead_letter", group = ARGV[2], first = ARGV[i],
        stop = tonumber(ARGV[i]) + 1, cause = REASONS[ARGV[i + 1]],
        number = number}))
    end
    number = number + 1
    lowest = math.min(lowest, tonumber(ARGV[i]))
  end
end
local outbox = table.concat(entries, ",")
redis.call("HSET", KEYS[2], "outbox", outbox,
  "outbox_lowest", outbox ~= "" and string.format("%.0f", lowest) or "",
  "outbox_number", string.format("%.0f", number - 1), "flushed", ARGV[1] .. ":" .. ARGV[3])
write_mark(KEYS[1], ARGV[2], meta[2], lowest)
if #records > 0 then
  write_audit(KEYS[1], KEYS[3], meta[4], ARGV[1], records)
end
return outbox
