-- Note since when a member is lost. A time that is noted already stays, unless the clock was set
-- back behind it: then the wait begins again, and does not last as much longer.
--
-- when full: passes
-- with: term
--
-- KEYS[1]  members of the group: hash {member:MEMBER → JSON, lost:MEMBER → ms}
-- KEYS[2]  config of the group
-- ARGV[1]  member    ARGV[2]  term of the coordinator that notes it; empty: none
-- returns  since when, in ms of Redis's time; 0: the group is not recorded; -1: the term is over;
--          nothing is written for both
local verdict = judge_term(KEYS[2], ARGV[2])
if verdict < 1 then
  return verdict
end
local field = "lost:" .. ARGV[1]
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local since = tonumber(redis.call("HGET", KEYS[1], field))
if not since or since > now_ms then
  since = now_ms
  redis.call("HSET", KEYS[1], field, string.format("%.0f", since))
end
return since
