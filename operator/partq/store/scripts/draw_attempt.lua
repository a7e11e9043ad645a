-- Draw the number of a handoff's next attempt: never used before, whatever Redis forgot.
--
-- when full: passes
-- with: term
--
-- KEYS[1]  handoffs of the group: hash {last_attempt, PARTITION ...}
-- KEYS[2]  config of the group
-- ARGV[1]  term of the coordinator that draws; empty: none
-- returns  the attempt; 0: the group is not recorded; -1: the term is over; nothing is written
local verdict = judge_term(KEYS[2], ARGV[1])
if verdict < 1 then
  return verdict
end
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call("HGET", KEYS[1], "last_attempt") or "0")
local attempt = math.max(last + 1, now_ms)
redis.call("HSET", KEYS[1], "last_attempt", string.format("%.0f", attempt))
return attempt
