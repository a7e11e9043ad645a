-- Read entries that wait, in the order in which they become due, from a place on.
--
-- KEYS[1]  due    KEYS[2]  scheduled: as append_batches.lua has them
-- ARGV[1]  due time of the entry that was read last, -1: none was    ARGV[2]  its number, 16 digits
-- ARGV[3]  the most entries    ARGV[4]  bytes after which no further entry is read
-- returns  {number, due in ms, text, ...}; nothing: none is behind the place
local low = redis.call("ZCOUNT", KEYS[1], "-inf", "(" .. ARGV[1])
local high = redis.call("ZCOUNT", KEYS[1], "-inf", ARGV[1])
-- By halves: members of one time are sorted, and the one that was read last may be gone.
while low < high do
  local middle = math.floor((low + high) / 2)
  if redis.call("ZRANGE", KEYS[1], middle, middle)[1] > ARGV[2] then
    high = middle
  else
    low = middle + 1
  end
end
local room, answer = tonumber(ARGV[4]), {}
local found = redis.call("ZRANGE", KEYS[1], low, low + tonumber(ARGV[3]) - 1, "WITHSCORES")
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
