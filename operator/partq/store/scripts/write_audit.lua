-- Write records of what changed in the broker's memory only, before it is sent or answered.
--
-- when full: passes
-- with: audit
--
-- KEYS[1]  meta      KEYS[2]  audit
-- ARGV[1]  broker epoch that the caller holds
-- ARGV[2]  number of the first record under this epoch    ARGV[3...]  records
-- returns  1: recorded, now or by an earlier try, or passed over as the partition keeps no record: a
--          repeat does not write it either, if a record has begun by then;
--          0 FENCED: the caller's broker epoch is over
local meta = redis.call("HMGET", KEYS[1], "broker_epoch", "audit", "audit_written")
if meta[1] ~= ARGV[1] then
  return 0
end
local records, written = new_records(meta[3], ARGV[1], ARGV, 2)
if #records > 0 then
  if meta[2] then
    write_audit(KEYS[1], KEYS[2], meta[2], ARGV[1], records)
  end
  redis.call("HSET", KEYS[1], "audit_written", written)
end
return 1
