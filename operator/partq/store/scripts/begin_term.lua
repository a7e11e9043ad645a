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
-- In µs, unlike other numbers drawn: those of an earlier group are forgotten with it, and in one ms a
-- group can be deleted and created again.
local time = redis.call("TIME")
local last = tonumber(redis.call("HGET", KEYS[1], "coordinator_term") or "0")
local term = math.max(last + 1, time[1] * 1000000 + time[2])
redis.call("HSET", KEYS[1], "coordinator_term", string.format("%.0f", term))
return term
