-- Refuse further steps of a reset of all partitions in one of them: its caller has gone, and the
-- owner of a successor is about to let the group have what comes after this partition.
--
-- Any broker calls it: it only takes a right away, and a repeat changes nothing.
--
-- when full: passes
--
-- KEYS[1]  cursor of the group: {ended, ...}: the last resets that were ended, apart by spaces
-- ARGV[1]  id of the reset
-- returns  1: it is over; -2 UNKNOWN: no such group
local MAX_ENDED = 16 -- a reset that is pushed out of the list was ended minutes ago

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
while #ended > MAX_ENDED do
  table.remove(ended, 1)
end
redis.call("HSET", KEYS[1], "ended", table.concat(ended, " "))
return 1
