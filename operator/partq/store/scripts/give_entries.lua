-- Take entries that wait out of a partition which their slots have left: a successor gets them.
--
-- when full: passes
-- with: draw
--
-- Nobody else finds them from then on. They stay here until the successor has them.
--
-- KEYS[1]  meta: {seal:G, given_number, scheduled_bytes, ...}
-- KEYS[2]  due    KEYS[3]  scheduled    KEYS[4]  id entries: as append_batches.lua has them
-- KEYS[5]  leaving: hash "<successor>/<number of the gift>" → "<due_ms> <number> <text>", the text
--          as in `scheduled`, without an id that a later message has made known again, and with
--          "*" behind the time to live of a batch that was divided; numbers of gifts grow
-- ARGV[1]  G: generation of the change that has taken the slots away    ARGV[2]  successor
-- ARGV[3...]  of each entry: number, SHA-1 of its batch as the caller has read it, batch that the
--          successor gets (empty: all of it), batch that stays (empty: none)
-- returns  how many were taken; those that are gone or differ are left alone
--          -1 NOT_SEALED: the slots have not left
local meta, due, scheduled, id_entries, leaving = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if redis.call("HEXISTS", meta, "seal:" .. ARGV[1]) == 0 then
  return -1
end
local given, grown = 0, 0
local last = redis.call("HGET", meta, "given_number")
for i = 3, #ARGV, 4 do
  local number, part, rest = ARGV[i], ARGV[i + 2], ARGV[i + 3]
  local text = redis.call("HGET", scheduled, number)
  local due_at = redis.call("ZSCORE", due, number)
  local head = text and string.match(text, "^%S+ ")
  if head and due_at and redis.sha1hex(string.sub(text, #head + 1)) == ARGV[i + 1] then
    local body = string.sub(text, #head + 1)
    local id = string.match(head, "#(%x+)")
    if id and tonumber(redis.call("HGET", id_entries, id) or "-1") ~= tonumber(number) then
      head, id = string.gsub(head, "#%x+", ""), nil
    end
    if rest ~= "" and not string.find(head, "*", 1, true) then
      head = string.sub(head, 1, -2) .. "* "
    end
    last = string.format("%.0f", draw_above(last))
    -- Not by string.format: it cuts bytes off at the first zero.
    redis.call("HSET", leaving, ARGV[2] .. "/" .. last, string.format("%.0f ", tonumber(due_at))
      .. number .. " " .. head .. (part == "" and body or part))
    if rest == "" then
      redis.call("ZREM", due, number)
      redis.call("HDEL", scheduled, number)
      if id then
        redis.call("HDEL", id_entries, id)
      end
    else
      redis.call("HSET", scheduled, number, head .. rest)
      grown = grown + #part + #rest - #body
    end
    given = given + 1
  end
end
if given > 0 then
  redis.call("HSET", meta, "given_number", last)
end
if grown ~= 0 then
  local bytes = tonumber(redis.call("HGET", meta, "scheduled_bytes") or "0") + grown
  redis.call("HSET", meta, "scheduled_bytes", string.format("%.0f", math.max(0, bytes)))
end
return given
