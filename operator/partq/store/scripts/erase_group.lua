-- Erase what is stored for a group as a whole, unless another group has its name by now.
--
-- when full: passes
--
-- KEYS[1]  config of the group      KEYS[2] ...  its other keys
-- ARGV[1]  `born` of the spec that the caller has seen; 0: it has none, or there was no spec
-- returns  1: nothing of it is left; 0: another one is there, nothing is erased
local json, born = unpack(redis.call("HMGET", KEYS[1], "json", "born"))
if json and (born or "0") ~= ARGV[1] then
  return 0
end
redis.call("UNLINK", unpack(KEYS))
return 1
