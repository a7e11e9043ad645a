-- Note since when a member is lost. A time that is noted already stays, unless the clock was set
-- back behind it: then the wait begins anew, and does not last as much longer.
--
-- when full: passes
--
-- KEYS[1]  members of the group: hash {member:MEMBER → JSON, lost:MEMBER → ms}
-- KEYS[2]  config of the group
-- ARGV[1]  member
-- returns  since when, in ms of Redis's time; 0: the group is not on record, nothing is written
if redis.call("EXISTS", KEYS[2]) == 0 then
  return 0
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
