-- Begin a coordinator's term of a group: every older one is over.
--
-- when full: passes
-- with: term
--
-- KEYS[1]  config of the group
-- returns  the term; 0: the group is not recorded, nothing is written
if judge_term(KEYS[1], "") == 0 then
  return 0
end
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call("HGET", KEYS[1], "coordinator_term") or "0")
local term = math.max(last + 1, now_ms)
redis.call("HSET", KEYS[1], "coordinator_term", string.format("%.0f", term))
return term
