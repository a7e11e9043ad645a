-- Put messages of a group into its outbox: they block its deliveries no more, and hold the log.
--
-- when full: passes
-- with: acks
-- with: audit
-- with: book
-- with: draw
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  number of this write under this epoch    ARGV[4]  when the group began
-- ARGV[5...]  of each message: offset, reason (number), how often its delivery failed because of
--             itself, and what the application said, or ""; the reasons 3 to 5 are stored as 1, for
--             brokers that do not know them
-- returns  the outbox afterwards, "<number>:<offset>:<reason>:<count>,..." by rising numbers; an
--          offset that was in it already keeps its number, and one that the stored book has done
--          with is left out, so a repeat changes nothing
--          0 FENCED: the caller's broker epoch is over, or the log does not hold what the caller
--          speaks of; -2 UNKNOWN: no such group; -3 SUPERSEDED: a later write is stored
-- In the cursor, field "note:<number>": what the application said; field "notes": their numbers.
local REASONS = {["1"] = "maxRedeliveries", ["2"] = "expired", ["3"] = "undecodable",
  ["4"] = "application", ["5"] = "quarantined"}

local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "next", "audit", "trimmed")
if not meta then
  return refusal
end
local cursor = redis.call("HMGET", KEYS[2], "outbox", "outbox_number", "outbox_lowest", "flushed",
  "cursor", "acked", "born", "notes")
local verdict = judge_write(cursor[4], cursor[7], ARGV[1], ARGV[3], ARGV[4])
if verdict < 1 then
  return verdict == 0 and (cursor[1] or "") or verdict
end
local entries, held, records, numbers, notes = {}, {}, {}, {}, {}
for entry, number, offset in string.gmatch(cursor[1] or "", "((%d+):(%d+):%d+:%d+)") do
  table.insert(entries, entry)
  held[offset] = true
  numbers[number] = true
end
-- Numbers are drawn like epochs: none is ever used twice, whatever Redis forgot. The target takes
-- a number below its last one for a repeat.
local number = draw_above(cursor[2])
local lowest = tonumber(cursor[3] or "") or math.huge
for i = 5, #ARGV, 4 do
  if not REASONS[ARGV[i + 1]] then
    return redis.error_reply("ERR reason " .. ARGV[i + 1] .. ", expected one of 1 to 5")
  end
  if tonumber(ARGV[i]) >= tonumber(meta[3]) then
    return 0
  end
  if not held[ARGV[i]] and not is_done(cursor[5], cursor[6], ARGV[i]) then
    if tonumber(ARGV[i]) < tonumber(meta[5]) then
      return 0
    end
    held[ARGV[i]] = true
    table.insert(entries, string.format("%.0f:%s:%s:%s", number, ARGV[i],
      tonumber(ARGV[i + 1]) > 2 and "1" or ARGV[i + 1], ARGV[i + 2]))
    if ARGV[i + 3] ~= "" then
      table.insert(notes, {string.format("%.0f", number), ARGV[i + 3]})
    end
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
local noted = {}
for number in string.gmatch(cursor[8] or "", "%d+") do
  if numbers[number] then
    table.insert(noted, number)
  else  -- left by a broker that knows no notes
    redis.call("HDEL", KEYS[2], "note:" .. number)
  end
end
for i = 1, #notes do
  redis.call("HSET", KEYS[2], "note:" .. notes[i][1], notes[i][2])
  table.insert(noted, notes[i][1])
end
if #noted > 0 or cursor[8] then
  redis.call("HSET", KEYS[2], "notes", table.concat(noted, ","))
end
write_mark(KEYS[1], ARGV[2], meta[2], lowest)
if #records > 0 then
  write_audit(KEYS[1], KEYS[3], meta[4], ARGV[1], records)
end
return outbox
