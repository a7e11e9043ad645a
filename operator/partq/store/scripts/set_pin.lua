-- Hold a partition's log for a reader without a group, from an offset on; a repeat renews it.
--
-- when full: passes
--
-- KEYS[1]  meta: field "pin:NAME" → "<offset> <until, in ms of Redis's clock>"
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  name    ARGV[3]  offset
-- ARGV[4]  how long it lasts, in ms              ARGV[5]  the most pins that a partition has
-- returns  the offset that is held: the one asked for, or the nearest one that the log has
--          -1: the caller's broker epoch is over; -2: other pins are too many
if redis.call("HGET", KEYS[1], "broker_epoch") ~= ARGV[1] then
  return -1
end
local fields = redis.call("HGETALL", KEYS[1])
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local record, others = {}, 0
for i = 1, #fields, 2 do
  local name = fields[i]
  record[name] = fields[i + 1]
  if string.sub(name, 1, 4) == "pin:" and name ~= "pin:" .. ARGV[2] then
    if tonumber(string.match(fields[i + 1], "%d+$")) > now_ms then
      others = others + 1
    else
      redis.call("HDEL", KEYS[1], name)
    end
  end
end
if others >= tonumber(ARGV[5]) then
  return -2
end
local offset = math.max(tonumber(record["trimmed"]), math.min(tonumber(ARGV[3]), tonumber(record["next"])))
redis.call("HSET", KEYS[1], "pin:" .. ARGV[2],
  string.format("%.0f %.0f", offset, now_ms + tonumber(ARGV[4])))
return offset
