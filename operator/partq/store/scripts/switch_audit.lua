-- Begin to keep the audit record of a partition, or end it. A repeat changes nothing. A call that
-- arrives after a later one of the same owner changes nothing either.
--
-- when full: passes
-- with: acks
-- with: audit
--
-- KEYS[1]  meta      KEYS[2]  audit      KEYS[3...]  cursors of the groups, in the order of ARGV[5...]
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  1: begin; 0: end    ARGV[3]  broker
-- ARGV[4]  number of this call under this epoch
-- ARGV[5...]         names of all groups of the partition
-- audit_written stays, as the broker's records are numbered over an end: a late repeat of some that
-- were written before it is not written again.
-- meta, field "audit_switched": "<broker epoch>:<number>" of the last call that was carried out
-- returns  1; 0 FENCED: the caller's broker epoch is over; -1: other groups are recorded;
--          -3 SUPERSEDED: a later call was carried out
local fields, record, mark_count = redis.call("HGETALL", KEYS[1]), {}, 0
for i = 1, #fields, 2 do
  record[fields[i]] = fields[i + 1]
  if string.sub(fields[i], 1, 5) == "mark:" then
    mark_count = mark_count + 1
  end
end
if record["broker_epoch"] ~= ARGV[1] then
  return 0
end
local epoch, last = string.match(record["audit_switched"] or "", "^(%d+):(%d+)$")
if epoch == ARGV[1] and tonumber(ARGV[4]) < tonumber(last) then
  return -3
end
if ARGV[2] == "1" and not record["audit"] then
  local groups, cursors = {}, {}
  for i = 5, #ARGV do
    if not record["mark:" .. ARGV[i]] then
      return -1
    end
    table.insert(groups, ARGV[i])
    table.insert(cursors, redis.call("HGETALL", KEYS[i - 2]))
  end
  if mark_count ~= #groups then
    return -1
  end
  begin_audit(KEYS[1], KEYS[2], record["audit_off"], ARGV[3], ARGV[1],
    first_records(record, groups, cursors))
elseif ARGV[2] == "0" and record["audit"] then
  local ended = write_audit(KEYS[1], KEYS[2], record["audit"], ARGV[1], {audit_line({kind = "end"})})
  redis.call("HDEL", KEYS[1], "audit")
  redis.call("HSET", KEYS[1], "audit_off", ended)
end
redis.call("HSET", KEYS[1], "audit_switched", ARGV[1] .. ":" .. ARGV[4])
return 1
