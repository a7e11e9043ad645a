-- Make a broker the owner of a partition, and return all that it needs to serve it.
--
-- when full: passes
-- with: acks
-- with: audit
-- with: mend
-- with: draw
--
-- KEYS[1]  meta      KEYS[2]  audit      KEYS[3...]  cursors, in the order of ARGV[6...]
-- ARGV[1]  broker    ARGV[2]  its incarnation    ARGV[3]  broker epoch that it saw recorded
-- ARGV[4]  when its owner affirmed it last, as seen with that; 0: never
-- ARGV[5]  whether the queue wants an audit record: 1 or 0
-- ARGV[6...]         names of all groups of the partition
-- returns  {new broker epoch, next, trimmed, {field, value, ...} of each cursor, whether a record is
--          kept: 1 or 0, of each cursor that was mended what `mend_cursor` says, {field, value, ...} of
--          what changes of the layout have left}
--          0 FENCED: another broker epoch is recorded, or the owner has affirmed it since;
--          -1 GROUPS_DIFFER: other groups are recorded; -2 UNKNOWN: no such partition
local meta = KEYS[1]
local seen = redis.call("HMGET", meta, "broker_epoch", "affirmed")
local epoch = seen[1]
if not epoch then
  return -2
end
if epoch ~= ARGV[3] or (seen[2] or "0") ~= ARGV[4] then
  return 0
end

local LAYOUT_FIELDS = {layout = true, slots = true, preds = true, open = true}
local mark_count, layout_fields = 0, {}
for _, field in ipairs(redis.call("HKEYS", meta)) do
  if string.sub(field, 1, 5) == "mark:" then
    mark_count = mark_count + 1
  elseif LAYOUT_FIELDS[field] or string.sub(field, 1, 5) == "seal:" then
    table.insert(layout_fields, field)
    table.insert(layout_fields, redis.call("HGET", meta, field))
  end
end
if mark_count ~= #ARGV - 5 then
  return -1
end
local groups = {}
for i = 6, #ARGV do
  if redis.call("HEXISTS", meta, "mark:" .. ARGV[i]) == 0 then
    return -1
  end
  table.insert(groups, ARGV[i])
end

local claimed = string.format("%.0f", draw_above(epoch))
redis.call("HSET", meta, "broker_epoch", claimed, "owner", ARGV[1], "owner_incarnation", ARGV[2],
  "successor", "", "append_number", "-1", "append_answer", "")
local record = redis.call("HMGET", meta, "next", "trimmed", "audit", "audit_off")
local claim = audit_line({kind = "claim", incarnation = ARGV[2], first = record[2],
  stop = record[1]})
local cursors, mended, claim_and_mends = {}, {}, {claim}
for i = 3, #KEYS do
  local found, records = mend_cursor(meta, KEYS[i], ARGV[i + 3], record[2], record[1])
  if found then
    table.insert(mended, found)
  end
  for _, each in ipairs(records) do
    table.insert(claim_and_mends, each)
  end
  cursors[i - 2] = redis.call("HGETALL", KEYS[i])
end
local audit = record[3]
if audit or ARGV[5] == "1" then
  if audit then
    -- The record continues under the new owner; whether it ends, that one says by switch_audit.
    local state = string.match(audit, "^%d+ %x+ %d+ ") .. ARGV[1]
    write_audit(meta, KEYS[2], state, claimed, claim_and_mends)
  else
    local records = first_records({next = record[1], trimmed = record[2]}, groups, cursors)
    table.insert(records, claim)
    begin_audit(meta, KEYS[2], record[4], ARGV[1], claimed, records)
  end
  return {claimed, record[1], record[2], cursors, 1, mended, layout_fields}
end
return {claimed, record[1], record[2], cursors, 0, mended, layout_fields}
