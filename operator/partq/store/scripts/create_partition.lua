-- Make the record of a partition. No other script does; a repeat changes nothing.
--
-- KEYS[1]  meta: hash {owner, owner_incarnation, successor, broker_epoch, next, trimmed,
--          total_bytes, freed_bytes, largest_bytes, at_ms, append_number, append_answer,
--          mark:GROUP ...}
-- returns  1: made; 0: it was there
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
redis.call("HSET", KEYS[1],
  "owner", "", "owner_incarnation", "", "successor", "", "broker_epoch", "0",
  "next", "0", "trimmed", "0", "total_bytes", "0", "freed_bytes", "0", "largest_bytes", "0",
  "at_ms", "0", "append_number", "-1", "append_answer", "")
return 1
