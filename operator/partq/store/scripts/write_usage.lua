-- Write how many bytes the logs of the queue have, unless a later sum is stored. One broker at a time
-- adds them up; the call of one that did so before may arrive late.
--
-- when full: passes
--
-- KEYS[1]  brokers: field "usage" → "<number> <bytes>"
-- ARGV[1]  number, one above that of the sum that the caller has read    ARGV[2]  bytes
-- returns  1: written; 0: another sum of this number, or of a later one, is stored
local stored = string.match(redis.call("HGET", KEYS[1], "usage") or "", "^%d+")
if stored and tonumber(stored) >= tonumber(ARGV[1]) then
  return 0
end
redis.call("HSET", KEYS[1], "usage", ARGV[1] .. " " .. ARGV[2])
return 1
