-- End the lock of a session.
--
-- when full: passes
-- with: book
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group: see lock_session.lua
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  number of this write under this epoch    ARGV[4]  when the group began
-- ARGV[5]  session    ARGV[6]  number of its lock: a later one stays
-- returns  1; 0 FENCED: the caller's broker epoch is over; -2 UNKNOWN: no such group;
--          -3 SUPERSEDED: a later write is stored
local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2])
if not meta then
  return refusal
end
local field = "lock:" .. ARGV[5]
local written, born, stored =
  unpack(redis.call("HMGET", KEYS[2], "locks_written", "born", field))
local verdict = judge_write(written, born, ARGV[1], ARGV[3], ARGV[4])
if verdict < 0 then
  return verdict
end
if stored and tonumber(string.match(stored, "^%d+")) <= tonumber(ARGV[6]) then
  redis.call("HDEL", KEYS[2], field)
end
redis.call("HSET", KEYS[2], "locks_written", ARGV[1] .. ":" .. ARGV[3])
return 1
