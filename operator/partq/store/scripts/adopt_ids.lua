-- Take over ids of messages that predecessors of the partition know, which had the messages' slots.
--
-- KEYS[1]  meta    KEYS[2]  ids: as in `append_batches`
-- ARGV[1]  broker epoch that the caller holds
-- ARGV[2...]  of each id: 16 bytes, and since when it is known, in ms
-- returns  1; an id that the partition knows itself stays as it is. A repeat changes nothing
--          0 FENCED: the caller's broker epoch is over
if redis.call("HGET", KEYS[1], "broker_epoch") ~= ARGV[1] then
  return 0
end
for i = 2, #ARGV, 2 do
  redis.call("ZADD", KEYS[2], "NX", ARGV[i + 1], ARGV[i])
end
return 1
