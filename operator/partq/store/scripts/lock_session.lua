-- Lock a session for a member, or have its lock last for longer. The broker knows the holders, as it
-- alone writes here under its broker epoch: nothing is compared.
--
-- when full: passes
-- with: book
-- with: draw
--
-- KEYS[1]  meta
-- KEYS[2]  cursor of the group: hash {lock:SESSION: "<number> <until_ms> <holder>", of each session
--          that is locked; locks_run: the run of Redis that the last lock was written to;
--          locks_written: number of that write, see judge_write; lock_number: the highest that was
--          drawn}
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group
-- ARGV[3]  number of this write under this epoch    ARGV[4]  when the group began
-- ARGV[5]  session    ARGV[6]  its holder    ARGV[7]  for how long, in ms
-- ARGV[8]  number of the lock that is to last for longer; 0: a new one is drawn
-- ARGV[9]  the run of Redis, as the caller knows it; empty: as it is, as locks may be missing
-- returns  number of the lock; 0 FENCED: the caller's broker epoch is over; -2 UNKNOWN: no such
--          group; -3 SUPERSEDED: a later write is stored
local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2])
if not meta then
  return refusal
end
local field = "lock:" .. ARGV[5]
local written, born, stored, highest =
  unpack(redis.call("HMGET", KEYS[2], "locks_written", "born", field, "lock_number"))
local verdict = judge_write(written, born, ARGV[1], ARGV[3], ARGV[4])
if verdict < 0 then
  return verdict
end
local number = tonumber(ARGV[8])
if verdict == 0 and stored then
  number = tonumber(string.match(stored, "^%d+")) -- an earlier try
elseif number == 0 then
  number = draw_above(highest)
end
local time = redis.call("TIME")
local until_ms = time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[7])
redis.call("HSET", KEYS[2],
  field, string.format("%.0f %.0f %s", number, until_ms, ARGV[6]),
  "lock_number", string.format("%.0f", math.max(number, tonumber(highest or "0"))),
  "locks_written", ARGV[1] .. ":" .. ARGV[3])
if ARGV[9] ~= "" then
  redis.call("HSET", KEYS[2], "locks_run", ARGV[9])
end
return number
