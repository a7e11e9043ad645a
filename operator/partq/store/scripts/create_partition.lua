-- Make the record of a partition. No other script does; a repeat changes nothing.
--
-- when full: passes
--
-- KEYS[1]  meta: hash {owner, owner_incarnation, successor, broker_epoch, next, trimmed,
--          total_bytes, freed_bytes, largest_bytes, at_ms, append_number, append_answer,
--          mark:GROUP ..., slots, layout, preds}
-- KEYS[2]  removal: hash, as `erase_partition` leaves it
-- ARGV[1]  of a partition that a change of the count makes: its generation; none: of a new queue
-- ARGV[2]  its slots, as ranges "0-2731,4096-8192"
-- ARGV[3]  its predecessors and the slots that come from each, "1.0:2731-4096;1.1:6827-8192"; it
--          takes no message before they are sealed. Empty: none are named any more
-- returns  1: made; 0: it was there
--          -1: not made, as it was removed lately: the caller does not know
--          -2 DIFFERS: it was there, with other slots, or from other predecessors
if redis.call("EXISTS", KEYS[1]) == 1 then
  local slots, preds = unpack(redis.call("HMGET", KEYS[1], "slots", "preds"))
  return ARGV[1] and ((slots or "") ~= ARGV[2] or (preds or "") ~= ARGV[3]) and -2 or 0
end
if redis.call("EXISTS", KEYS[2]) == 1 then
  return -1
end
redis.call("HSET", KEYS[1],
  "owner", "", "owner_incarnation", "", "successor", "", "broker_epoch", "0",
  "next", "0", "trimmed", "0", "total_bytes", "0", "freed_bytes", "0", "largest_bytes", "0",
  "at_ms", "0", "append_number", "-1", "append_answer", "")
if ARGV[1] then
  redis.call("HSET", KEYS[1], "layout", ARGV[1], "slots", ARGV[2])
  if ARGV[3] ~= "" then
    redis.call("HSET", KEYS[1], "preds", ARGV[3])
  end
end
return 1
