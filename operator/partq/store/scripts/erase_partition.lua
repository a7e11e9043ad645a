-- Remove the keys of a partition that its queue has no more. What it knows of producers stays for a
-- while: their messages are still found to be repeats, also by partitions that ask the predecessors
-- of this one. The names of outboxes and replays ("dlq:") stay no longer than the others. Ids of
-- messages stay for as long as the queue knows ids, from now on.
--
-- when full: passes
--
-- KEYS[1]  meta    KEYS[2]  producers    KEYS[3]  series
-- KEYS[4]  removal: hash {preds, series_forgotten_ms, ids}, as `meta` had them; as long as it is there
--          the partition is not created again, so that a late call of a coordinator leaves nothing
--          behind
-- KEYS[5]  ids: of messages, as in `append_batches`; meta, field "ids": as in `forget_ids`
-- KEYS[6...]  the rest: some hundreds at most, as they are unpacked
-- ARGV[1]  how long producers, series and removal stay, in ms, if ids do not stay for longer
-- returns  how many keys were removed
local preds, forgotten, noted =
  unpack(redis.call("HMGET", KEYS[1], "preds", "series_forgotten_ms", "ids"))
if noted then
  redis.call("HSET", KEYS[4], "ids", noted)
else
  noted = redis.call("HGET", KEYS[4], "ids")  -- a repeat
end
local window = tonumber(string.match(noted or "", " (%d+)$") or "0")
if forgotten then
  redis.call("HSET", KEYS[4], "series_forgotten_ms", forgotten)
end
if preds or redis.call("EXISTS", KEYS[4]) == 0 then
  redis.call("HSET", KEYS[4], "preds", preds or "")
end
for i = 2, 3 do
  redis.call("PEXPIRE", KEYS[i], ARGV[1])
end
redis.call("PEXPIRE", KEYS[4], string.format("%.0f", math.max(tonumber(ARGV[1]), window)))
local first = 5
if window > 0 then
  redis.call("PEXPIRE", KEYS[5], string.format("%.0f", window))
  first = 6
end
return redis.call("UNLINK", KEYS[1], unpack(KEYS, first))
