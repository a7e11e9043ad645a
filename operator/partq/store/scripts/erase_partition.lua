-- Remove the keys of a partition that its queue has no more. What it knows of producers stays for a
-- while: their messages are still found to be repeats, also by partitions that ask the predecessors
-- of this one. The names of outboxes and replays ("dlq:") stay no longer than the others.
--
-- when full: passes
--
-- KEYS[1]  meta    KEYS[2]  producers    KEYS[3]  series
-- KEYS[4]  removal: hash {preds, series_forgotten_ms}, as `meta` had them; as long as it is there
--          the partition is not created again, so that a late call of a coordinator leaves nothing
--          behind
-- KEYS[5...]  the rest: some hundreds at most, as they are unpacked
-- ARGV[1]  how long producers, series and removal stay, in ms
-- returns  how many keys were removed
local preds, forgotten =
  unpack(redis.call("HMGET", KEYS[1], "preds", "series_forgotten_ms"))
if forgotten then
  redis.call("HSET", KEYS[4], "series_forgotten_ms", forgotten)
end
if preds or redis.call("EXISTS", KEYS[4]) == 0 then
  redis.call("HSET", KEYS[4], "preds", preds or "")
end
for i = 2, 4 do
  redis.call("PEXPIRE", KEYS[i], ARGV[1])
end
return redis.call("UNLINK", KEYS[1], unpack(KEYS, 5))
