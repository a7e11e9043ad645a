-- Let go of what a pin holds, unless a later call has set it.
--
-- when full: passes
-- with: draw
--
-- KEYS[1]  meta: field "pins_removed" → the highest number of a call that has removed a pin,
--          whichever: a call that sets one below it is late, or is told to go above it
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  name
-- ARGV[3]  number of the call; empty: it has none, and is not compared; 0: remove nothing, and
--          return a number above those of all calls before
-- ARGV[4]  how far "pins_removed" goes above Redis's time, at most, in ms: numbers are drawn by that
--          time, and no caller can use them up
-- returns  1: there is no such pin any more; 0 FENCED: the caller's broker epoch is over;
--          {number}: of a later call that has set it, so nothing is removed
local name = "pin:" .. ARGV[2]
local meta = redis.call("HMGET", KEYS[1], "broker_epoch", name, "pins_removed")
if meta[1] ~= ARGV[1] then
  return 0
end
local last = tonumber(string.match(meta[2] or "", "^%d+ (%d+) %d+$") or "0")
local removed = tonumber(meta[3] or "0")
if ARGV[3] == "0" then
  return {draw_above(math.max(last, removed))}
end
local number = ARGV[3] == "" and last or tonumber(ARGV[3])
if number < last then
  return {last}
end
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
number = math.min(number, now_ms + tonumber(ARGV[4]))
if number > removed then
  redis.call("HSET", KEYS[1], "pins_removed", string.format("%.0f", number))
end
redis.call("HDEL", KEYS[1], name)
return 1
