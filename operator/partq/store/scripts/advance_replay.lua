-- Record what became of the dead letter that was on its way back, and which one goes next.
--
-- when full: passes
-- with: draw
--
-- KEYS[1]  meta; field "replay": "<below> <number> <sending> <broker epoch>:<write>". All dead
--          letters below `below` were sent back. `number`: the last one that was drawn; `sending`:
--          the offset that is on its way under it, -1: none; then the last write
-- KEYS[2]  replayed: hash of the offsets from `below` on that were sent back, each with its number
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  number of this write under this epoch
-- ARGV[3]  offset that is no longer on its way, -1: none; nothing happens if another one is
-- ARGV[4]  1: its queue has it; 0: its queue certainly does not get it
-- ARGV[5]  below this offset nothing is left to be sent back
-- ARGV[6]  offset that goes next, -1: none. It goes only if none is on its way
-- ARGV[7]  the most offsets that KEYS[2] may have
-- returns  texts {below, number, sending, 1: KEYS[2] has no room for ARGV[6], 0: it has}
--          0 FENCED: the caller's broker epoch is over, or the log does not hold ARGV[6]; -2 UNKNOWN: no such partition;
--          -3 SUPERSEDED: a later write is stored. The state as it is for a repeat
local meta = redis.call("HMGET", KEYS[1], "broker_epoch", "trimmed", "next", "replay")
if not meta[1] then
  return -2
end
if meta[1] ~= ARGV[1] or tonumber(ARGV[6]) >= tonumber(meta[3]) then
  return 0
end
local below, number, sending, epoch, write =
  string.match(meta[4] or "0 0 -1 0:0", "^(%d+) (%d+) (%-?%d+) (%d+):(%d+)$")
if epoch == ARGV[1] and tonumber(ARGV[2]) < tonumber(write) then
  return -3
end
if epoch == ARGV[1] and ARGV[2] == write then
  return {below, number, sending, "0"}
end

-- Of a log that has lost its end the offsets behind it are given again.
local first = math.min(tonumber(below), tonumber(meta[3]))
local function is_sent(offset)
  return tonumber(offset) < first or redis.call("HEXISTS", KEYS[2], offset) == 1
end

if sending ~= "-1" and sending == ARGV[3] then
  if ARGV[4] == "1" and not is_sent(sending) then
    redis.call("HSET", KEYS[2], sending, number)
  end
  sending = "-1"
end
local passed = math.max(tonumber(meta[2]), tonumber(ARGV[5]))
if passed > first then
  first = passed
  for _, offset in ipairs(redis.call("HKEYS", KEYS[2])) do
    if tonumber(offset) < first then
      redis.call("HDEL", KEYS[2], offset)
    end
  end
end
while redis.call("HDEL", KEYS[2], string.format("%.0f", first)) == 1 do
  first = first + 1
end

local is_full = "0"
if ARGV[6] ~= "-1" and sending == "-1" and not is_sent(ARGV[6]) then
  if tonumber(ARGV[6]) > first and redis.call("HLEN", KEYS[2]) >= tonumber(ARGV[7]) then
    is_full = "1"
  else
    -- Drawn like epochs: the target takes a number below its last one for a repeat.
    number = string.format("%.0f", draw_above(number))
    sending = ARGV[6]
  end
end
below = string.format("%.0f", first)
redis.call("HSET", KEYS[1], "replay",
  string.format("%s %s %s %s:%s", below, number, sending, ARGV[1], ARGV[2]))
return {below, number, sending, is_full}
