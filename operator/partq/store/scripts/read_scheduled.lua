-- Read scheduled messages of a partition in the order in which they become due.
--
-- with: behind
--
-- KEYS[1]  due: sorted set, member number (16 digits), score the time in ms
-- KEYS[2]  scheduled, as append_batches.lua has it
-- ARGV[1]  due time of the last one that was read; empty: none was, from the beginning
-- ARGV[2]  its number; empty with a time: all that are due by then were read
-- ARGV[3]  only what is due before this time, in ms; empty: all
-- ARGV[4]  the most entries     ARGV[5]  bytes after which no further entry is read
-- returns  {1: more follow, number, due in ms, entry, ...}; what has no bytes any more is left out
local start = 0
if ARGV[1] ~= "" and ARGV[2] == "" then
  start = redis.call("ZCOUNT", KEYS[1], "-inf", ARGV[1])
elseif ARGV[1] ~= "" then
  start = rank_behind(KEYS[1], ARGV[1], ARGV[2])
end
local count, room = tonumber(ARGV[4]), tonumber(ARGV[5])
local found = redis.call("ZRANGE", KEYS[1], start, start + count, "WITHSCORES")
local answer = {0}
for i = 1, #found, 2 do
  if ARGV[3] ~= "" and tonumber(found[i + 1]) >= tonumber(ARGV[3]) then
    return answer
  end
  if i > 2 * count or room <= 0 then
    answer[1] = 1
    return answer
  end
  local entry = redis.call("HGET", KEYS[2], found[i])
  if entry then
    table.insert(answer, found[i])
    table.insert(answer, string.format("%.0f", tonumber(found[i + 1])))
    table.insert(answer, entry)
    room = room - #entry
  end
end
return answer
