-- Free what every group has behind it: all entries before the one with the lowest mark in it, or
-- with the offset of a pin that lasts.
--
-- when full: passes
-- with: audit
--
-- KEYS[1]  meta      KEYS[2]  log      KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  how long a pin lasts at most, in ms
-- ARGV[3]  below this offset all has outlived its time to live: the mark where there is no group
-- ARGV[4]  "1": trim nothing, and say what would be left; else empty
-- ARGV[5]  from this offset on what all groups have behind them stays; empty: none of it stays
-- ARGV[6]  how many bytes of it stay at most, the newest; empty: no limit
-- returns  {the first offset that is still in the log, the lowest that a group or a pin holds, bytes
--          before the lowest mark that are still in the log; 0: none of it is to stay}, as text
--          0 FENCED: the caller's broker epoch is over
local LIMIT = 10000

local meta = redis.call("HGETALL", KEYS[1])
local record, pins, lowest = {}, {}, nil
for i = 1, #meta, 2 do
  if string.sub(meta[i], 1, 5) == "mark:" then
    lowest = math.min(lowest or math.huge, tonumber(meta[i + 1]))
  elseif string.sub(meta[i], 1, 4) == "pin:" then
    pins[meta[i]] = meta[i + 1]
  else
    record[meta[i]] = meta[i + 1]
  end
end
if record["broker_epoch"] ~= ARGV[1] then
  return 0
end

-- Below this all groups have acknowledged everything.
local mark = ARGV[5] ~= "" and lowest or nil
if not lowest and tonumber(ARGV[3]) > 0 then
  lowest = tonumber(ARGV[3])
end
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
for name, pin in pairs(pins) do
  local offset, left_ms = string.match(pin, "^%d+"), string.match(pin, "%d+$") - now_ms
  if left_ms <= 0 then
    redis.call("HDEL", KEYS[1], name)
  elseif lowest then
    if left_ms > tonumber(ARGV[2]) then -- the clock was set back: it lasts no longer for that
      redis.call("HSET", KEYS[1], name,
        string.format("%s %.0f", string.match(pin, "^(.*) %d+$"), now_ms + ARGV[2]))
    end
    lowest = math.min(lowest, tonumber(offset))
  end
end
local held = string.format("%.0f", lowest or 0)

local function first_of(entry)
  return tonumber(string.match(entry[1], "^%d+"))
end

local function stop_of(entry)
  return first_of(entry) + tonumber(entry[2][2])
end

local function entry_at(offset)
  return redis.call("XREVRANGE", KEYS[2], string.format("%.0f-1", offset), "-", "COUNT", 1)[1]
end

-- The offset from which on the log has `goal` bytes before it, or more. Each entry tells what is
-- before it. Mostly it is near the beginning, so the first looks are in growing steps.
local function find_before(goal, head, stop)
  local low, high, step = first_of(head), stop, 1
  if tonumber(head[2][8]) >= goal then
    return low
  end
  low = stop_of(head)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if step and low + step < middle then
      middle = low + step
    end
    local entry = entry_at(middle)
    if tonumber(entry[2][8]) < goal then
      low = math.max(middle + 1, stop_of(entry))
      step = step and math.max(2 * step, tonumber(entry[2][2]))
    else
      high, step = first_of(entry), nil
    end
  end
  return high
end

local before_mark, before_head = 0, 0
if mark and mark > tonumber(record["trimmed"]) then
  local head = redis.call("XRANGE", KEYS[2], "-", "+", "COUNT", 1)[1]
  local last = head and entry_at(mark)
  if last then
    before_head, before_mark = tonumber(head[2][8]), tonumber(last[2][8])
    if mark >= stop_of(last) then
      before_mark = before_mark + #last[2][10]
    end
    local kept = tonumber(ARGV[5])
    if ARGV[6] ~= "" then
      kept = math.max(kept, find_before(before_mark - tonumber(ARGV[6]), head, mark))
    end
    lowest = math.min(lowest, kept)
  end
end

-- Writes how much of what is before the mark is still there, and returns it as text.
local function retained(before_first)
  local bytes = string.format("%.0f", math.max(0, before_mark - before_first))
  if ARGV[4] ~= "1" and bytes ~= (record["retained_bytes"] or "0") then
    redis.call("HSET", KEYS[1], "retained_bytes", bytes)
  end
  return bytes
end

if not lowest or lowest <= tonumber(record["trimmed"]) then
  return {record["trimmed"], held, retained(before_head)}
end

local at_mark = entry_at(lowest)
if not at_mark then
  return {record["trimmed"], held, retained(before_head)}
end
local cut = at_mark[1]
local first = first_of(at_mark)
if lowest >= stop_of(at_mark) then
  cut = string.format("%.0f-1", lowest) -- the mark is the log's end
  first = lowest
end
if ARGV[4] == "1" then
  local kept = redis.call("XRANGE", KEYS[2], cut, "+", "COUNT", 1)[1]
  return {kept and string.match(kept[1], "^%d+") or record["next"], held, retained(before_head)}
end
-- Most positions are at the cut: for them the append broker epoch of what goes below it is kept.
local below = redis.call("XREVRANGE", KEYS[2], string.format("%.0f-0", first), "-", "COUNT", 1)[1]

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
if below then
  local is_known = tonumber(trimmed) == first -- else the entry that went last is not the one below
  redis.call("HSET", KEYS[1], "trimmed_epoch", is_known and below[2][4] or "0")
end
if record["audit"] and trimmed ~= record["trimmed"] then
  write_audit(KEYS[1], KEYS[3], record["audit"], ARGV[1],
    {audit_line({kind = "trim", first = record["trimmed"], stop = trimmed})})
end
return {trimmed, held, retained(tonumber(freed))}
