-- Refuse further steps of a reset of all partitions in one of them: its caller has gone, and the
-- owner of a successor is about to let the group have what comes after this partition.
--
-- Any broker calls it: it only takes a right away, and a repeat changes nothing.
--
-- when full: passes
-- with: resets
--
-- KEYS[1]  cursor of the group
-- ARGV[1]  id of the reset, "MS-NAME@G"
-- returns  1: it is over; -2 UNKNOWN: no such group
if redis.call("EXISTS", KEYS[1]) == 0 then
  return -2
end
end_reset(KEYS[1], ARGV[1])
return 1
