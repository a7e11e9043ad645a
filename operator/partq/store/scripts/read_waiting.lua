-- Read entries that wait, in the order in which they become due, from a place on.
--
-- with: behind
--
-- KEYS[1]  due    KEYS[2]  scheduled: as append_batches.lua has them
-- ARGV[1]  due time of the entry that was read last, -1: none was    ARGV[2]  its number, 16 digits
-- ARGV[3]  the most entries    ARGV[4]  bytes after which no further entry is read
-- returns  {number, due in ms, text, ...}; nothing: none is behind the place
local start = rank_behind(KEYS[1], ARGV[1], ARGV[2])
local room, answer = tonumber(ARGV[4]), {}
local found = redis.call("ZRANGE", KEYS[1], start, start + tonumber(ARGV[3]) - 1, "WITHSCORES")
for i = 1, #found, 2 do
  local text = redis.call("HGET", KEYS[2], found[i]) or ""
  table.insert(answer, found[i])
  table.insert(answer, string.format("%.0f", tonumber(found[i + 1])))
  table.insert(answer, text)
  room = room - #text
  if room <= 0 then
    break
  end
end
return answer
