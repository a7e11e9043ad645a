-- Forget ids of messages that are known for long enough, the oldest first, and count the others.
--
-- when full: passes
--
-- KEYS[1]  meta; field "ids": "<count> <window in ms>", as of the last look of the owner; none: there
--          are no ids
-- KEYS[2]  ids: sorted set of ids, 16 bytes each, by when they were known, as at_ms
-- ARGV[1]  broker epoch that the caller holds
-- ARGV[2]  for how many ms an id is known; 0: none is any more
-- ARGV[3]  how many may go in this call
-- returns  {how many are left, 1 if more have to go or else 0}
--          0 FENCED: the caller's broker epoch is over
local meta, ids = KEYS[1], KEYS[2]
local epoch, at_ms, noted = unpack(redis.call("HMGET", meta, "broker_epoch", "at_ms", "ids"))
if epoch ~= ARGV[1] then
  return 0
end
local time = redis.call("TIME")
-- As `append_batches` judges: by a time that never falls.
local at = math.max(time[1] * 1000 + math.floor(time[2] / 1000), tonumber(at_ms))
local window, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local old = window > 0 and redis.call("ZCOUNT", ids, "-inf", string.format("%.0f", at - window))
  or redis.call("ZCARD", ids)
if old > 0 then
  redis.call("ZREMRANGEBYRANK", ids, 0, math.min(old, most) - 1)
end
local count = redis.call("ZCARD", ids)
if count == 0 and window == 0 then
  redis.call("HDEL", meta, "ids")
else
  local note = string.format("%.0f %.0f", count, window)
  if note ~= noted then
    redis.call("HSET", meta, "ids", note)
  end
end
return {count, old > most and 1 or 0}
