-- A part of scripts that judge or end resets of all partitions, by the record of a group in one.
--
-- cursor of the group: {ended, ended_below, ...}: the resets that are over here and began last,
-- apart by spaces; all that began at ended_below, in ms, or before are over as well
local MAX_ENDED = 16 -- for one that is pushed out, all that began before it are refused

local function began_ms(id)
  return tonumber(string.match(id, "^%d+"))
end

local function is_over(cursor_key, id)
  local ended, below = unpack(redis.call("HMGET", cursor_key, "ended", "ended_below"))
  if string.find(" " .. (ended or "") .. " ", " " .. id .. " ", 1, true) then
    return true
  end
  -- Ended, and pushed out of the list. If the clock was set back meanwhile, new ones begin below.
  local now_ms = tonumber(redis.call("TIME")[1]) * 1000 + 1000
  below = tonumber(below or "0")
  return began_ms(id) <= below and below <= now_ms
end

-- Refuse further steps of a reset; a repeat changes nothing.
local function end_reset(cursor_key, over)
  local ended = {}
  for id in string.gmatch(redis.call("HGET", cursor_key, "ended") or "", "%S+") do
    if id == over then
      return
    end
    table.insert(ended, id)
  end
  table.insert(ended, over)
  local below = tonumber(redis.call("HGET", cursor_key, "ended_below") or "0")
  while #ended > MAX_ENDED do
    -- The one that began first: so as few as can be are refused that were not ended.
    local first = 1
    for at = 2, #ended do
      if began_ms(ended[at]) < began_ms(ended[first]) then
        first = at
      end
    end
    below = math.max(below, began_ms(table.remove(ended, first)))
  end
  redis.call("HSET", cursor_key, "ended", table.concat(ended, " "),
    "ended_below", string.format("%.0f", below))
end
