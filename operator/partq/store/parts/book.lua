-- A part of scripts that write a group's book. Its owner numbers these writes under its broker
-- epoch, in the order in which it makes them: a call that its caller has given up may still be
-- carried out, and writes nothing once a later one has.
--
-- cursor of the group, field "flushed": "<broker epoch>:<number>" of the last write

-- Return 1: the write is new; 0: it is the last one again; -3: a later one is stored.
local function judge_write(flushed, broker_epoch, number)
  local epoch, last = string.match(flushed or "", "^(%d+):(%d+)$")
  if epoch ~= broker_epoch or tonumber(number) > tonumber(last) then
    return 1
  end
  return tonumber(number) == tonumber(last) and 0 or -3
end

-- Return whether a book has done with an offset, given as text.
local function is_done(cursor, acked, offset)
  local at = tonumber(offset)
  if at < tonumber(cursor) then
    return true
  end
  for first, stop in string.gmatch(acked or "", "(%d+)-(%d+)") do
    if tonumber(first) > at then
      return false
    end
    if at < tonumber(stop) then
      return true
    end
  end
  return false
end
