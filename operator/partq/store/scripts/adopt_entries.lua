-- Have entries wait in a partition that has their slots now: a predecessor has given them.
--
-- when full: passes
--
-- Gifts of a predecessor are taken in the order of their numbers, each once: a call that comes late,
-- or again, finds the number of the last one.
--
-- KEYS[1]  meta: {broker_epoch, scheduled_number, scheduled_bytes, "carried:<predecessor>", ...}
-- KEYS[2]  due    KEYS[3]  scheduled    KEYS[4]  id entries    KEYS[5]  ids: as append_batches.lua
--          has them
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  predecessor
-- ARGV[3...]  of each entry, by rising numbers of gifts: that number, when it is due, its number,
--          its text as in `scheduled`, since when the predecessor knows its id (empty: it knows
--          nothing of it, or there is no id). A number that is in use here grows until it is not
-- returns  1
--          0 FENCED: the caller's broker epoch is over
local meta, due, scheduled, id_entries, ids = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local field = "carried:" .. ARGV[2]
local epoch, carried, last, bytes =
  unpack(redis.call("HMGET", meta, "broker_epoch", field, "scheduled_number", "scheduled_bytes"))
if epoch ~= ARGV[1] then
  return 0
end
carried, last, bytes = tonumber(carried or "0"), tonumber(last or "0"), tonumber(bytes or "0")
-- Numbers that are in use, one after another: they are looked at once, as there may be very many.
local used, free = 0, 0
for i = 3, #ARGV, 5 do
  if tonumber(ARGV[i]) > carried then
    carried = tonumber(ARGV[i])
    local number, text = tonumber(ARGV[i + 2]), ARGV[i + 3]
    local first = number
    local member = string.format("%016.0f", number)
    while redis.call("ZSCORE", due, member) do
      if used <= number and number < free then
        first, number = math.min(first, used), free
      else
        number = number + 1
      end
      member = string.format("%016.0f", number)
    end
    used, free = first, number + 1
    redis.call("ZADD", due, ARGV[i + 1], member)
    redis.call("HSET", scheduled, member, text)
    local head = string.match(text, "^%S+ ")
    local id = string.match(head, "#(%x+)")
    if id then
      local since = ARGV[i + 4]
      local id_bytes = string.gsub(id, "%x%x", function(digits)
        return string.char(tonumber(digits, 16))
      end)
      if since ~= "" then
        redis.call("ZADD", ids, "NX", since, id_bytes)
      end
      -- Where it is known since another time, it is so of a later message.
      local known = redis.call("ZSCORE", ids, id_bytes)
      if not known or tonumber(known) == tonumber(since) then
        redis.call("HSET", id_entries, id, string.format("%.0f", number))
      end
    end
    last, bytes = math.max(last, number), bytes + #text - #head
  end
end
redis.call("HSET", meta, field, string.format("%.0f", carried),
  "scheduled_number", string.format("%.0f", last), "scheduled_bytes", string.format("%.0f", bytes))
return 1
