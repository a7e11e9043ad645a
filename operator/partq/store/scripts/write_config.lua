-- Write an effective spec, unless one of a later resource generation is there.
--
-- when full: passes
--
-- KEYS[1]  config: hash {json, resource_generation}
-- ARGV[1]  resource generation    ARGV[2]  spec (JSON)
-- returns  1: written; 0: a later one is there
local stored = tonumber(redis.call("HGET", KEYS[1], "resource_generation") or "0")
if stored > tonumber(ARGV[1]) then
  return 0
end
redis.call("HSET", KEYS[1], "resource_generation", ARGV[1], "json", ARGV[2])
return 1
