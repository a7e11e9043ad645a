-- Find how far a reading of a log goes that is to stay within a number of bytes of batches.
--
-- KEYS[1]  meta      KEYS[2]  log
-- ARGV[1]  offset of the first message to be read    ARGV[2]  bytes
-- ARGV[3]  offset behind the last message to be read
-- returns  {id of the entry that holds the offset (of the first one, if that was trimmed), id of the
--          last one that fits; the same if not even that one does, bytes of all these};
--          {}: the log ends before it
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
local first, before = fitting[1], tonumber(fitting[2][8])
local goal = before + tonumber(ARGV[2])
-- What lies below `low` fits, what begins at `high` does not: each entry tells what is before it.
-- Each look copies an entry, so the first ones are near by: in growing steps, until one does not fit.
local log_end = tonumber(redis.call("HGET", KEYS[1], "next"))
local low, high = stop_of(fitting), math.min(tonumber(ARGV[3]), log_end)
local step = 0
while low < high do
  local middle = math.floor((low + high) / 2)
  if step and low + step < middle then
    middle = low + step
  end
  local id = string.format("%.0f-1", middle)
  local entry = redis.call("XREVRANGE", KEYS[2], id, "-", "COUNT", 1)[1]
  if tonumber(entry[2][8]) + #entry[2][10] <= goal then
    -- Where the log has a hole the entry ends below `middle`, and nothing begins up to there.
    fitting, low = entry, math.max(middle + 1, stop_of(entry))
    step = step and math.max(2 * step, tonumber(entry[2][2]))
  else
    high, step = tonumber(string.match(entry[1], "^%d+")), nil
  end
end
return {first, fitting[1], tonumber(fitting[2][8]) + #fitting[2][10] - before}
