-- Say how old messages of a partition are.
--
-- KEYS[1]  log
-- ARGV     offsets
-- returns  of each the ms since it was appended, by Redis's clock; -1: the log does not hold it
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local ages = {}
for i, offset in ipairs(ARGV) do
  local entry = redis.call("XREVRANGE", KEYS[1], string.format("%.0f-1", offset), "-", "COUNT", 1)[1]
  ages[i] = -1
  if entry and tonumber(offset) < tonumber(string.match(entry[1], "^%d+")) + tonumber(entry[2][2]) then
    ages[i] = math.max(0, now_ms - tonumber(entry[2][6]))
  end
end
return ages
