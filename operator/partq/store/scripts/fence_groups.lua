-- Void each addition of a group to a partition that was decided before, wherever it is on its way.
--
-- when full: passes
-- with: draw
--
-- KEYS[1]  meta
-- returns  the new fence, which `add_group` names; -2 UNKNOWN: no such partition
local before = redis.call("HMGET", KEYS[1], "next", "groups_fence")
if not before[1] then
  return -2
end
local fence = draw_above(before[2])
redis.call("HSET", KEYS[1], "groups_fence", string.format("%.0f", fence))
return fence
