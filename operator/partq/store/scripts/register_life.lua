-- Register a life (uid) of a queue's name. The first one is the current one. A life that was given
-- up is not registered again: the call is late.
--
-- KEYS[1]  lives: hash {current, uid:UID → ms of its registration}    KEYS[2]  ended:UID
-- ARGV[1]  uid
-- returns  the uid that is current; 0: this life was given up, and nothing is written
if redis.call("EXISTS", KEYS[2]) == 1 then
  return 0
end
local time = redis.call("TIME")
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("HSETNX", KEYS[1], "uid:" .. ARGV[1], string.format("%.0f", now_ms))
redis.call("HSETNX", KEYS[1], "current", ARGV[1])
return redis.call("HGET", KEYS[1], "current")
