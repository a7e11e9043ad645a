-- Give up a life (uid) of a queue's name: the next resource of this name begins its own.
--
-- when full: passes
--
-- KEYS[1]  lives: hash {current, uid:UID → ms of its registration}
-- KEYS[2]  ended:UID: is there for a while, so that nobody registers this life again
-- ARGV[1]  uid    ARGV[2]  1: its keys stay, and so does its entry; 0: forget it
-- ARGV[3]  how long KEYS[2] stays, in ms
-- returns  1: done
if redis.call("HGET", KEYS[1], "current") == ARGV[1] then
  redis.call("HDEL", KEYS[1], "current")
end
if ARGV[2] == "0" then
  redis.call("HDEL", KEYS[1], "uid:" .. ARGV[1])
end
redis.call("SET", KEYS[2], "1", "PX", ARGV[3])
return 1
