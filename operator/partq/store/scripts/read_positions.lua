-- Tell what a log holds, and under which broker epochs the messages below some offsets came.
--
-- KEYS[1]  meta      KEYS[2]  log
-- ARGV[1]  broker epoch that the caller holds    ARGV[2...]  offsets
-- returns  {first offset that is in the log, its end, epoch, ...}, as text: for each offset the
--          broker epoch under which the message just below it was appended, "0" when that is not
--          known: the log does not have it, and it is not the one that was trimmed last.
--          0 FENCED: the caller's broker epoch is over
local meta = redis.call("HMGET", KEYS[1], "broker_epoch", "trimmed", "next", "trimmed_epoch")
if meta[1] ~= ARGV[1] then
  return 0
end
local answer = {meta[2], meta[3]}
for i = 2, #ARGV do
  local offset, epoch = tonumber(ARGV[i]), "0"
  if offset > tonumber(meta[2]) and offset <= tonumber(meta[3]) then
    local id = string.format("%.0f-1", offset - 1)
    local entry = redis.call("XREVRANGE", KEYS[2], id, "-", "COUNT", 1)[1]
    -- What ends below it is another message: this one is missing.
    if entry and offset <= tonumber(string.match(entry[1], "^%d+")) + tonumber(entry[2][2]) then
      epoch = entry[2][4]
    end
  elseif ARGV[i] == meta[2] then
    epoch = meta[4] or "0"
  end
  answer[i + 1] = epoch
end
return answer
