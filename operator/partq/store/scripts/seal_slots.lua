-- End some slots of a partition: its log takes no more messages of them. A seal is never undone.
--
-- when full: passes
-- with: audit
--
-- KEYS[1]  meta: {broker_epoch, next, trimmed, slots, layout, preds, open, seal:G, ...}
-- KEYS[2]  audit
-- ARGV[1]  broker epoch that the caller holds
-- ARGV[2]  G: generation of the change of the layout that takes the slots away
-- ARGV[3]  slots that stay, as ranges "0-2731,4096-8192"; empty: none
-- ARGV[4...]  earlier changes that are settled here: their seals are removed, as nobody waits for
--          what is below them. A partition that only ever gives slots away has a field per change
--          otherwise. Where the log still has messages below one, the caller is wrong: it stays
-- returns  {end of the log when the slots left}; the same again for a repeat, also by another owner
--          0 FENCED: the caller's broker epoch is over
--          -1 NOT_OPEN: the partition waits for the seals of its predecessors
--          -3 SUPERSEDED: a seal of a later change is stored, and none of this one
local meta = KEYS[1]
local field = "seal:" .. ARGV[2]
local epoch, stop, preds, open, layout, sealed, audit, trimmed = unpack(redis.call("HMGET", meta,
  "broker_epoch", "next", "preds", "open", "layout", field, "audit", "trimmed"))
if epoch ~= ARGV[1] then
  return 0
end
if sealed then
  return {tonumber(sealed)}
end
if preds and not open then
  return -1
end
if tonumber(layout or "1") >= tonumber(ARGV[2]) then
  return -3
end
redis.call("HSET", meta, field, stop, "slots", ARGV[3], "layout", ARGV[2])
for i = 4, #ARGV do
  local settled = "seal:" .. ARGV[i]
  if tonumber(redis.call("HGET", meta, settled) or "0") <= tonumber(trimmed) then
    redis.call("HDEL", meta, settled)
  end
end
if audit then
  write_audit(meta, KEYS[2], audit, ARGV[1],
    {audit_line({kind = "seal", number = ARGV[2], stop = stop, target = ARGV[3]})})
end
return {tonumber(stop)}
