-- Find how far a reading of a log goes that is to stay within so many bytes of batches.
--
-- KEYS[1]  meta      KEYS[2]  log
-- ARGV[1]  offset of the first message to be read    ARGV[2]  bytes
-- ARGV[3]  offset behind the last message to be read
-- returns  {id of the entry that holds the offset (of the first one, if that was trimmed), id of the
--          last one that fits; the same if not even that one does}; {}: the log ends before it
local start = string.format("%.0f-1", tonumber(ARGV[1]))
local fitting = redis.call("XREVRANGE", KEYS[2], start, "-", "COUNT", 1)[1]

local function stop_of(entry)
  return tonumber(string.match(entry[1], "^%d+")) + tonumber(entry[2][2])
end

if not fitting or stop_of(fitting) <= tonumber(ARGV[1]) then
  fitting = redis.call("XRANGE", KEYS[2], start, "+", "COUNT", 1)[1]
  if not fitting then
    return {}
  end
end
local first = fitting[1]
local goal = tonumber(fitting[2][8]) + tonumber(ARGV[2])
-- What lies below `low` fits, what begins at `high` does not: each entry tells what is before it.
local log_end = tonumber(redis.call("HGET", KEYS[1], "next"))
local low, high = stop_of(fitting), math.min(tonumber(ARGV[3]), log_end)
while low < high do
  local middle = string.format("%.0f-1", math.floor((low + high) / 2))
  local entry = redis.call("XREVRANGE", KEYS[2], middle, "-", "COUNT", 1)[1]
  if tonumber(entry[2][8]) + #entry[2][10] <= goal then
    fitting, low = entry, stop_of(entry)
  else
    high = tonumber(string.match(entry[1], "^%d+"))
  end
end
return {first, fitting[1]}
