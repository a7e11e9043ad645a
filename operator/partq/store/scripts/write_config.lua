-- Write an effective spec above the one that it was made from.
--
-- Each write has the generation that follows the one it has seen: of two that have seen the same,
-- one is written. A group's spec may be erased and created again, its generations with it: when
-- that was tells the two apart, and none of the two from nothing, which an erasure leaves.
--
-- when full: passes
--
-- KEYS[1]  config: hash {json, resource_generation, born: µs of its begin, or of the first write}
-- ARGV[1]  resource generation    ARGV[2]  spec (JSON)
-- ARGV[3]  `born` of the spec that the caller has seen, or has begun; 0: an earlier version made
--          the spec, and it has none; empty: whatever it is
-- returns  1: written, or a repeat of what is there; 0: another one is there, or none any more
local json, generation, born =
  unpack(redis.call("HMGET", KEYS[1], "json", "resource_generation", "born"))
local stored, given = tonumber(generation or "0"), tonumber(ARGV[1])
if stored == given and json == ARGV[2] then
  return 1
end
if stored >= given or (ARGV[3] ~= "" and ARGV[3] ~= (born or (json and "0"))) then
  return 0
end
local time = redis.call("TIME")
redis.call("HSETNX", KEYS[1], "born", string.format("%.0f", time[1] * 1000000 + time[2]))
redis.call("HSET", KEYS[1], "resource_generation", ARGV[1], "json", ARGV[2])
return 1
