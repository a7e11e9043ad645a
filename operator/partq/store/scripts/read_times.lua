-- Say when messages of a partition were appended.
--
-- KEYS[1]  log
-- ARGV     offsets
-- returns  {now, time of each}, in ms of Redis's clock; -1: the log does not hold it
local time = redis.call("TIME")
local times = {time[1] * 1000 + math.floor(time[2] / 1000)}
for _, offset in ipairs(ARGV) do
  local entry = redis.call("XREVRANGE", KEYS[1], string.format("%.0f-1", offset), "-", "COUNT", 1)[1]
  local at = -1
  if entry and tonumber(offset) < tonumber(string.match(entry[1], "^%d+")) + tonumber(entry[2][2]) then
    at = tonumber(entry[2][6])
  end
  table.insert(times, at)
end
return times
