-- Draw the number of a handoff's next attempt: never used before, whatever Redis forgot.
--
-- when full: passes
-- with: term
-- with: draw
--
-- KEYS[1]  handoffs of the group: hash {last_attempt, PARTITION ...}
-- KEYS[2]  config of the group
-- ARGV[1]  term of the coordinator that draws; empty: none
-- returns  the attempt; 0: the group is not recorded; -1: the term is over; nothing is written
local verdict = judge_term(KEYS[2], ARGV[1])
if verdict < 1 then
  return verdict
end
local attempt = draw_above(redis.call("HGET", KEYS[1], "last_attempt"))
redis.call("HSET", KEYS[1], "last_attempt", string.format("%.0f", attempt))
return attempt
