-- Free what every group has behind it: all entries before the one with the lowest mark in it.
--
-- when full: passes
--
-- KEYS[1]  meta      KEYS[2]  log
-- ARGV[1]  broker epoch that the caller holds
-- returns  the first offset that is still in the log, as text; 0: the caller's broker epoch is over
local LIMIT = 10000

local meta = redis.call("HGETALL", KEYS[1])
local record, lowest = {}, nil
for i = 1, #meta, 2 do
  if string.sub(meta[i], 1, 5) == "mark:" then
    lowest = math.min(lowest or math.huge, tonumber(meta[i + 1]))
  else
    record[meta[i]] = meta[i + 1]
  end
end
if record["broker_epoch"] ~= ARGV[1] then
  return 0
end
if not lowest or lowest <= tonumber(record["trimmed"]) then
  return record["trimmed"]
end

local at_mark = redis.call("XREVRANGE", KEYS[2], string.format("%.0f-1", lowest), "-", "COUNT", 1)[1]
if not at_mark then
  return record["trimmed"]
end
local cut = at_mark[1]
local first = tonumber(string.match(cut, "^%d+"))
if lowest >= first + tonumber(at_mark[2][2]) then
  cut = string.format("%.0f-1", lowest) -- the mark is the log's end
end

-- Whole nodes first, at most so many entries in one call. When that was not all, the rest waits
-- for the next call; else what is left below the cut is a part of one node.
if redis.call("XTRIM", KEYS[2], "MINID", "~", cut, "LIMIT", LIMIT) < LIMIT / 2 then
  redis.call("XTRIM", KEYS[2], "MINID", "=", cut)
end
local head = redis.call("XRANGE", KEYS[2], "-", "+", "COUNT", 1)[1]
local trimmed, freed = record["next"], record["total_bytes"]
if head then
  trimmed, freed = string.match(head[1], "^%d+"), head[2][8]
end
redis.call("HSET", KEYS[1], "trimmed", trimmed, "freed_bytes", freed)
return trimmed
