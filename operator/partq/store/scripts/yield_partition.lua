-- Give up a partition: nobody owns it, and the yielding broker's epoch is over.
--
-- when full: passes
-- with: audit
-- with: draw
--
-- KEYS[1]  meta      KEYS[2]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  broker that is to claim next, or empty
-- returns  1; 0 FENCED: the caller's broker epoch is over
local epoch, audit = unpack(redis.call("HMGET", KEYS[1], "broker_epoch", "audit"))
if epoch ~= ARGV[1] then
  return 0
end
if audit then
  write_audit(KEYS[1], KEYS[2], audit, epoch, {audit_line({kind = "yield", target = ARGV[2]})})
end
redis.call("HSET", KEYS[1], "owner", "", "owner_incarnation", "", "successor", ARGV[2],
  "broker_epoch", string.format("%.0f", draw_above(epoch)))
return 1
