-- A part of scripts that look for a time in a log. Times never fall within a log.

-- Return the offset of the first message that was appended at `at_ms`, in ms of Redis's clock, or
-- later; without such a message the log's end. `trimmed`, `next`: text, where the log begins and ends.
local function find_time(log, trimmed, next, at_ms)
  local low, high = tonumber(trimmed), tonumber(next)
  -- What was appended before the time ends at `low` or above; what begins at `high` was not.
  while low < high do
    local middle = math.floor((low + high) / 2)
    local entry = redis.call("XREVRANGE", log, string.format("%.0f-1", middle), "-", "COUNT", 1)[1]
    if not entry then
      low = middle + 1
    else
      local first = tonumber(string.match(entry[1], "^%d+"))
      if tonumber(entry[2][6]) < at_ms then
        low = math.max(middle + 1, first + tonumber(entry[2][2]))
      else
        high = first
      end
    end
  end
  return low
end
