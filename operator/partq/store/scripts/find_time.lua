-- Find where in a partition's log the messages of a time begin. Times never fall within a log.
--
-- KEYS[1]  meta      KEYS[2]  log
-- ARGV[1]  time of appending, in ms of Redis's clock
-- returns  the offset of the first message that was appended then or later; none: the log's end
local record = redis.call("HMGET", KEYS[1], "next", "trimmed")
local low, high = tonumber(record[2]), tonumber(record[1])
-- What was appended before the time ends at `low` or above; what begins at `high` was not.
while low < high do
  local middle = math.floor((low + high) / 2)
  local entry = redis.call("XREVRANGE", KEYS[2], string.format("%.0f-1", middle), "-", "COUNT", 1)[1]
  if not entry then
    low = middle + 1
  else
    local first = tonumber(string.match(entry[1], "^%d+"))
    if tonumber(entry[2][6]) < tonumber(ARGV[1]) then
      low = math.max(middle + 1, first + tonumber(entry[2][2]))
    else
      high = first
    end
  end
end
return low
