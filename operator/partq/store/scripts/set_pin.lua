-- Hold a partition's log for a reader without a group, from an offset on; a repeat renews it.
-- Calls of a reader have numbers that grow: one that arrives late changes nothing of a later one,
-- be it that the later one has removed the pin.
--
-- when full: passes
-- with: draw
--
-- KEYS[1]  meta: field "pin:NAME" → "<offset> <number of the last call> <until, in ms of
--          Redis's clock>"; an earlier version has written no number. Field "pins_removed": as
--          remove_pin.lua writes it
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  name    ARGV[3]  offset
-- ARGV[4]  how long it lasts, in ms              ARGV[5]  the most pins that a partition has
-- ARGV[6]  number of the call; empty: it has none, and is not compared; 0: write nothing, and
--          return a number above those of all calls before
-- returns  {the offset that is held, number of the last call}: the offset is the one asked for, or
--          the nearest one that the log has; a higher number than the caller's is that of a later
--          call, or where there is no such pin the highest of calls that removed any, and nothing is
--          written
--          -1 PIN_FENCED: the caller's broker epoch is over; -2 TOO_MANY_PINS: other pins are
--          too many
if redis.call("HGET", KEYS[1], "broker_epoch") ~= ARGV[1] then
  return -1
end
local fields = redis.call("HGETALL", KEYS[1])
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local record, others, held, last = {}, 0, nil, nil
for i = 1, #fields, 2 do
  local name = fields[i]
  record[name] = fields[i + 1]
  if string.sub(name, 1, 4) == "pin:" then
    if tonumber(string.match(fields[i + 1], "%d+$")) <= now_ms then
      redis.call("HDEL", KEYS[1], name)
    elseif name ~= "pin:" .. ARGV[2] then
      others = others + 1
    else
      held = string.match(fields[i + 1], "^%d+")
      last = string.match(fields[i + 1], "^%d+ (%d+) %d+$") or "0"
    end
  end
end
local removed = record["pins_removed"] or "0"
last = last or removed
local later = ARGV[6] == "0" and draw_above(math.max(tonumber(last), tonumber(removed)))
  or tonumber(last)
if ARGV[6] ~= "" and tonumber(ARGV[6]) < later then
  return {tonumber(held or record["trimmed"]), later}
end
if others >= tonumber(ARGV[5]) then
  return -2
end
local offset = math.max(tonumber(record["trimmed"]), math.min(tonumber(ARGV[3]), tonumber(record["next"])))
local number = ARGV[6] ~= "" and ARGV[6] or last
redis.call("HSET", KEYS[1], "pin:" .. ARGV[2],
  string.format("%.0f %s %.0f", offset, number, now_ms + tonumber(ARGV[4])))
return {offset, tonumber(number)}
