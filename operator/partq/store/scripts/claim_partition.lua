-- Make a broker the owner of a partition, and return all that it needs to serve it.
--
-- when full: passes
--
-- KEYS[1]  meta      KEYS[2...]  cursors of the groups, in the order of ARGV[5...]
-- ARGV[1]  broker    ARGV[2]  its incarnation    ARGV[3]  broker epoch that it saw on record
-- ARGV[4]  when its owner affirmed it last, as seen with that; 0: never
-- ARGV[5...]         names of all groups of the partition
-- returns  {new broker epoch, next, trimmed, {field, value, ...} of each cursor}
--          0: another broker epoch is on record, or the owner has affirmed it since;
--          -1: other groups are on record; -2: no such partition
local meta = KEYS[1]
local seen = redis.call("HMGET", meta, "broker_epoch", "affirmed")
local epoch = seen[1]
if not epoch then
  return -2
end
if epoch ~= ARGV[3] or (seen[2] or "0") ~= ARGV[4] then
  return 0
end

local mark_count = 0
for _, field in ipairs(redis.call("HKEYS", meta)) do
  if string.sub(field, 1, 5) == "mark:" then
    mark_count = mark_count + 1
  end
end
if mark_count ~= #ARGV - 4 then
  return -1
end
for i = 5, #ARGV do
  if redis.call("HEXISTS", meta, "mark:" .. ARGV[i]) == 0 then
    return -1
  end
end

local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local claimed = string.format("%.0f", math.max(tonumber(epoch) + 1, now_ms))
redis.call("HSET", meta, "broker_epoch", claimed, "owner", ARGV[1], "owner_incarnation", ARGV[2],
  "successor", "", "append_number", "-1", "append_answer", "")
local record = redis.call("HMGET", meta, "next", "trimmed")
local cursors = {}
for i = 2, #KEYS do
  cursors[i - 1] = redis.call("HGETALL", KEYS[i])
end
return {claimed, record[1], record[2], cursors}
