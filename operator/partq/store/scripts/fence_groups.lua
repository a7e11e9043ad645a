-- Void each addition of a group to a partition that was decided before, wherever it is on its way.
--
-- when full: passes
--
-- KEYS[1]  meta
-- returns  the new fence, which `add_group` names; -2: no such partition
local before = redis.call("HMGET", KEYS[1], "next", "groups_fence")
if not before[1] then
  return -2
end
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local fence = math.max(tonumber(before[2] or "0") + 1, now_ms)
redis.call("HSET", KEYS[1], "groups_fence", string.format("%.0f", fence))
return fence
