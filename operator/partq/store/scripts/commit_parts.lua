-- Move parts of a group's partition from members to others, each on its own; all that move have one
-- new epoch. The book stays with its broker: nothing of it is written.
--
-- when full: passes
-- with: audit
-- with: book
-- with: draw
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group: hash {parts: JSON {members, of, attempts}, ...}
-- KEYS[3]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group    ARGV[3]  when the group began
-- ARGV[4]  how many parts the partition has, which counts if none was ever moved
-- ARGV[5]  the highest epoch that the caller has given to deliveries
-- ARGV[6...]  of each part: its number, source member or empty, attempt, target member or empty,
--          cause, for the audit record
-- returns  {epoch, verdict of each part}: the epoch of the record; 1: the part has passed, now or
--          by an earlier try of the call; -1: another member has it; -2: its attempt is over;
--          -3: there is no such part
--          0 FENCED: the caller's broker epoch is over; -2 UNKNOWN: no such group

local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "audit")
if not meta then
  return refusal
end
local stored, epoch, born = unpack(redis.call("HMGET", KEYS[2], "parts", "epoch", "born"))
if (born or "0") ~= ARGV[3] then
  return -2
end
local owners, attempts, count = {}, {}, tonumber(ARGV[4])
if stored then
  local record = cjson.decode(stored)
  count = #record.of
  for part = 1, count do
    owners[part] = record.members[record.of[part] + 1] or ""
    attempts[part] = record.attempts[part]
  end
else
  for part = 1, count do
    owners[part], attempts[part] = "", 0
  end
end

local verdicts, moved = {}, {}
for i = 6, #ARGV, 5 do
  local part, source, attempt, target = tonumber(ARGV[i]) + 1, ARGV[i + 1], tonumber(ARGV[i + 2]),
    ARGV[i + 3]
  local verdict = 1
  if part > count then
    verdict = -3
  elseif attempt == attempts[part] and target == owners[part] then
    verdict = 1 -- an earlier try
  elseif attempt <= attempts[part] then
    verdict = -2
  elseif source ~= owners[part] then
    verdict = -1
  else
    owners[part], attempts[part] = target, attempt
    table.insert(moved, i)
  end
  table.insert(verdicts, verdict)
end
if #moved == 0 then
  return {tonumber(epoch), verdicts}
end

local members, index, of, drawn = {}, {}, {}, {}
for part = 1, count do
  local owner = owners[part]
  if owner ~= "" and not index[owner] then
    index[owner] = #members
    table.insert(members, cjson.encode(owner))
  end
  of[part] = index[owner] or -1
  drawn[part] = string.format("%.0f", attempts[part])
end
local parts = string.format('{"members": [%s], "of": [%s], "attempts": [%s]}',
  table.concat(members, ", "), table.concat(of, ", "), table.concat(drawn, ", "))
local new_epoch = draw_above(math.max(tonumber(epoch), tonumber(ARGV[5])))
-- The members of parts are the group's: none has the partition as a whole.
redis.call("HSET", KEYS[2], "parts", parts, "epoch", string.format("%.0f", new_epoch),
  "member", "", "incarnation", "")
if meta[3] then
  local records = {}
  for _, i in ipairs(moved) do
    table.insert(records, audit_line({kind = "commit_part", group = ARGV[2], member = ARGV[i + 1],
      epoch = new_epoch, attempt = ARGV[i + 2], number = ARGV[i], target = ARGV[i + 3],
      cause = ARGV[i + 4]}))
  end
  write_audit(KEYS[1], KEYS[3], meta[3], ARGV[1], records)
end
return {new_epoch, verdicts}
