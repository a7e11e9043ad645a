-- Begin a coordinator's term of a group: every older one is over.
--
-- when full: passes
-- with: term
-- with: draw
--
-- KEYS[1]  config of the group
-- returns  the term; 0: the group is not recorded, nothing is written
if judge_term(KEYS[1], "") == 0 then
  return 0
end
local term = draw_above(redis.call("HGET", KEYS[1], "coordinator_term"))
redis.call("HSET", KEYS[1], "coordinator_term", string.format("%.0f", term))
return term
