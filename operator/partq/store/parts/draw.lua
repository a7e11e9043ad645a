-- A part of scripts that draw numbers of which none is ever used twice, whatever Redis forgot:
-- epochs, terms, attempts, fences.

-- Return Redis's time in ms, or the number after `last`, if that is higher: the clock may have been
-- set back. `last`: text; false: none is known.
local function draw_above(last)
  local time = redis.call("TIME")
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  return math.max(tonumber(last or "0") + 1, now_ms)
end
