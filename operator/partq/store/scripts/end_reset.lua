-- Refuse further steps of a reset of all partitions in one of them: its caller has gone, and the
-- owner of a successor is about to let the group have what comes after this partition.
--
-- Any broker calls it: it only takes a right away, and a repeat changes nothing.
--
-- when full: passes
--
-- KEYS[1]  cursor of the group: {ended, ended_below, ...}: the resets that were ended and began
--          last, apart by spaces; all that began at ended_below, in ms, or before are over as well
-- ARGV[1]  id of the reset, "MS-NAME@G"
-- returns  1: it is over; -2 UNKNOWN: no such group
local MAX_ENDED = 16 -- for one that is pushed out, all that began before it are refused

if redis.call("EXISTS", KEYS[1]) == 0 then
  return -2
end
local ended = {}
for id in string.gmatch(redis.call("HGET", KEYS[1], "ended") or "", "%S+") do
  if id == ARGV[1] then
    return 1
  end
  table.insert(ended, id)
end
table.insert(ended, ARGV[1])
local function began_ms(id)
  return tonumber(string.match(id, "^%d+"))
end
local below = tonumber(redis.call("HGET", KEYS[1], "ended_below") or "0")
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
redis.call("HSET", KEYS[1], "ended", table.concat(ended, " "),
  "ended_below", string.format("%.0f", below))
return 1
