-- Read entries of a partition that are due, by Redis's time: the first ones first.
--
-- KEYS[1]  due    KEYS[2]  scheduled: both as append_batches.lua has them
-- ARGV[1]  how many of the first ones are passed over    ARGV[2]  the most entries
-- ARGV[3]  bytes after which no further entry is read
-- returns  {Redis's time in ms, when the first one is due that was not read, or -1: none is left,
--          number, due in ms, text, ...}, all as text
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local count, room = tonumber(ARGV[2]), tonumber(ARGV[3])
local start = tonumber(ARGV[1])
local found = redis.call("ZRANGE", KEYS[1], start, start + count, "WITHSCORES")
local answer = {string.format("%.0f", now), "-1"}
for i = 1, #found, 2 do
  local due = string.format("%.0f", tonumber(found[i + 1]))
  if tonumber(due) > now or i > 2 * count or room <= 0 then
    answer[2] = due
    break
  end
  local text = redis.call("HGET", KEYS[2], found[i])
  table.insert(answer, found[i])
  table.insert(answer, due)
  table.insert(answer, text or "")
  room = room - #(text or "")
end
return answer
