-- Remove from a predecessor what a successor has: its record says so. The ids have gone there, too.
--
-- when full: passes
--
-- KEYS[1]  meta: {scheduled_bytes, ...}    KEYS[2]  leaving: as give_entries.lua has it
-- KEYS[3]  ids, as append_batches.lua has them
-- ARGV[1...]  fields of `leaving`
-- returns  how many were removed
local freed, removed = 0, 0
for _, field in ipairs(ARGV) do
  local gift = redis.call("HGET", KEYS[2], field)
  if gift then
    local head = string.match(gift, "^%d+ %d+ %S+ ")
    freed = freed + #gift - #head
    local id = string.match(head, "#(%x+)")
    if id then
      local id_bytes = string.gsub(id, "%x%x", function(digits)
        return string.char(tonumber(digits, 16))
      end)
      redis.call("ZREM", KEYS[3], id_bytes)
    end
    removed = removed + redis.call("HDEL", KEYS[2], field)
  end
end
if removed > 0 then
  local bytes = tonumber(redis.call("HGET", KEYS[1], "scheduled_bytes") or "0") - freed
  redis.call("HSET", KEYS[1], "scheduled_bytes", string.format("%.0f", math.max(0, bytes)))
end
return removed
