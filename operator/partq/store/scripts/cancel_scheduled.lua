-- Remove scheduled messages of a partition that were not appended yet.
--
-- when full: passes
-- with: audit
--
-- KEYS[1]  meta: scheduled_bytes is how many bytes wait
-- KEYS[2]  due    KEYS[3]  scheduled    KEYS[4]  ids    KEYS[5]  id entries, as append_batches.lua
-- has them
-- KEYS[6]  audit
-- ARGV[1]  broker epoch that the caller holds
-- ARGV[2...]  number of each, 16 digits
-- returns  {bytes that wait no more, 1 or 0: it was there and is removed, or was not; 2: it was, and
--          other partitions may have parts of it, as `give_entries` has divided it, ...}
--          0 FENCED: the caller's broker epoch is over; nothing is removed
local record = redis.call("HMGET", KEYS[1], "broker_epoch", "audit", "scheduled_bytes")
if record[1] ~= ARGV[1] then
  return 0
end
local freed, answer, records = 0, {0}, {}
for i = 2, #ARGV do
  local number = ARGV[i]
  local entry = redis.call("HGET", KEYS[3], number)
  local is_there = redis.call("ZREM", KEYS[2], number) == 1
  local is_divided = false
  redis.call("HDEL", KEYS[3], number)
  if entry then
    local head = string.match(entry, "^%S+ ")
    is_divided = string.find(head, "*", 1, true)
    freed = freed + #entry - #head
    -- Its id is known no more: the message may be sent again. That of a later message stays known.
    local id = string.match(head, "#(%x+)")
    if id and tonumber(redis.call("HGET", KEYS[5], id) or "-1") == tonumber(number) then
      local bytes = string.gsub(id, "%x%x", function(digits)
        return string.char(tonumber(digits, 16))
      end)
      redis.call("HDEL", KEYS[5], id)
      redis.call("ZREM", KEYS[4], bytes)
    end
  end
  table.insert(answer, is_there and (is_divided and 2 or 1) or 0)
  if is_there and record[2] then
    table.insert(records, audit_line({kind = "unschedule", number = number}))
  end
end
answer[1] = freed
if freed > 0 then
  redis.call("HSET", KEYS[1], "scheduled_bytes",
    string.format("%.0f", math.max(0, tonumber(record[3] or "0") - freed)))
end
if #records > 0 then
  write_audit(KEYS[1], KEYS[6], record[2], ARGV[1], records)
end
return answer
