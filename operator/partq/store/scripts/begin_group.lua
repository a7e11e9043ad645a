-- Say when a group begins, before its spec is written; a repeat changes nothing. Erasing the
-- group takes this back, too: a spec that arrives after that finds nothing to be written for.
--
-- when full: passes
--
-- KEYS[1]  config of the group
-- returns  when it begins, in µs of Redis's time
local time = redis.call("TIME")
redis.call("HSETNX", KEYS[1], "born", string.format("%.0f", time[1] * 1000000 + time[2]))
return redis.call("HGET", KEYS[1], "born")
