-- Free the groups of a partition's audit record that an archive has.
--
-- when full: passes
--
-- KEYS[1]  meta      KEYS[2]  audit
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  the first sequence that is kept
-- returns  {the first sequence that is stored, the next one}, as text: call again while there is
--          more below ARGV[2]; 0 FENCED: the caller's broker epoch is over
local LIMIT = 10000

local meta = redis.call("HMGET", KEYS[1],
  "broker_epoch", "audit", "audit_off", "audit_trimmed")
if meta[1] ~= ARGV[1] then
  return 0
end
local next_sequence, bytes = string.match(meta[2] or meta[3] or "0  0 ", "^(%d+) %x* (%d+) ")
local first = string.match(meta[4] or "0 0", "^%d+")
local wanted = math.min(tonumber(ARGV[2]), tonumber(next_sequence))
if wanted > tonumber(first) then
  local cut = string.format("%.0f-1", wanted)
  -- Whole nodes first, at most so many entries in one call.
  if redis.call("XTRIM", KEYS[2], "MINID", "~", cut, "LIMIT", LIMIT) < LIMIT / 2 then
    redis.call("XTRIM", KEYS[2], "MINID", "=", cut)
  end
  local head = redis.call("XRANGE", KEYS[2], "-", "+", "COUNT", 1)[1]
  local freed = bytes
  first = next_sequence
  if head then
    first, freed = string.match(head[1], "^%d+"), head[2][6]
  end
  redis.call("HSET", KEYS[1], "audit_trimmed", first .. " " .. freed)
end
return {first, next_sequence}
