-- Let a partition take messages: the slots that it gets have left all of its predecessors.
--
-- when full: passes
-- with: audit
--
-- KEYS[1]  meta: {broker_epoch, next, preds, open, ...}
-- KEYS[2]  audit
-- ARGV[1]  broker epoch that the caller holds
-- ARGV[2]  what the caller has read of the predecessors, for the audit record: "1.3:17,1.4:0",
--          each with the end of its log at the seal
--          The record has "1.3:17:2731-4096;1.4:0:6827-8192": with the slots, from `preds`
-- returns  1: open, also after a repeat, and where it has no predecessors
--          0 FENCED: the caller's broker epoch is over
local meta = KEYS[1]
local epoch, preds, open, stop, audit = unpack(redis.call("HMGET", meta,
  "broker_epoch", "preds", "open", "next", "audit"))
if epoch ~= ARGV[1] then
  return 0
end
if open or not preds then
  return 1
end
redis.call("HSET", meta, "open", "1")
if audit then
  -- With the slots that come from each: a reader of the record needs no layout.
  local seals = {}
  for name, stop in string.gmatch(ARGV[2], "([^:,]+):(%d+)") do
    seals[name] = stop
  end
  local target = string.gsub(preds, "([^:;]+):", function(name)
    return name .. ":" .. (seals[name] or "") .. ":"
  end)
  write_audit(meta, KEYS[2], audit, ARGV[1],
    {audit_line({kind = "open", first = stop, target = target})})
end
return 1
