-- Read entries of a log, from the one that contains an offset on.
--
-- KEYS[1]  log
-- ARGV[1]  offset    ARGV[2]  bytes after which no further entry is taken    ARGV[3]  most entries
-- returns  {first offset, n, broker_epoch, at_ms, batch, first offset, ...}
local MAX_STEP = 64
local wanted, max_bytes, max_entries = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local function offset_of(entry)
  return string.match(entry[1], "^%d+")
end

local start = "-"
local below = redis.call("XREVRANGE", KEYS[1], ARGV[1] .. "-1", "-", "COUNT", 1)[1]
if below then
  start = below[1]
  if tonumber(offset_of(below)) + tonumber(below[2][2]) <= wanted then
    start = "(" .. start
  end
end

local flat, bytes, count, step = {}, 0, 0, 1
while bytes < max_bytes and count < max_entries do
  step = math.min(step, max_entries - count)
  local entries = redis.call("XRANGE", KEYS[1], start, "+", "COUNT", step)
  for _, entry in ipairs(entries) do
    local fields = entry[2]
    table.insert(flat, offset_of(entry))
    table.insert(flat, fields[2])
    table.insert(flat, fields[4])
    table.insert(flat, fields[6])
    table.insert(flat, fields[10])
    bytes = bytes + #fields[10]
  end
  if #entries < step then
    break
  end
  count = count + #entries
  start = "(" .. entries[#entries][1]
  -- As many as fit, if the next ones are like those so far; never far more than that.
  local fitting = math.ceil((max_bytes - bytes) * count / math.max(bytes, 1))
  step = math.max(1, math.min(fitting, 2 * count, MAX_STEP))
end
return flat
