-- A part of scripts that write a group's book. Its owner numbers these writes under its broker
-- epoch, in the order in which it makes them: a call that its caller has given up may still be
-- carried out, and writes nothing once a later one has.
--
-- cursor of the group, field "flushed": "<broker epoch>:<number>" of the last write

-- cursor of the group, field "born": when the group began in this partition, as add_group draws
-- it; none: an earlier version made it, which counts as 0

-- Return the broker epoch of a partition, a group's mark in it, and the fields that are named.
-- Or false, and what the script returns: 0 FENCED: the caller's broker epoch is over;
-- -2 UNKNOWN: no such group.
local function read_owned(meta_key, broker_epoch, group, ...)
  local meta = redis.call("HMGET", meta_key, "broker_epoch", "mark:" .. group, ...)
  if meta[1] ~= broker_epoch then
    return false, 0
  end
  if not meta[2] then
    return false, -2
  end
  return meta
end

-- Let a group hold the log from its cursor on, or from what waits in its outbox.
local function write_mark(meta_key, group, cursor, outbox_lowest)
  local lowest = tonumber(outbox_lowest or "") or math.huge
  redis.call("HSET", meta_key, "mark:" .. group,
    string.format("%.0f", math.min(tonumber(cursor), lowest)))
end

-- Return 1: the write is new; 0: it is the last one again; -2 UNKNOWN: it speaks of another group
-- that had the name; -3 SUPERSEDED: a later one is stored.
local function judge_write(flushed, stored_born, broker_epoch, number, born)
  if (stored_born or "0") ~= born then
    return -2
  end
  local epoch, last = string.match(flushed or "", "^(%d+):(%d+)$")
  if epoch ~= broker_epoch or tonumber(number) > tonumber(last) then
    return 1
  end
  return tonumber(number) == tonumber(last) and 0 or -3
end

-- Have no lane of a group wait any more but those that wait until they are released.
local function keep_held(cursor_key)
  local parked = redis.call("HGET", cursor_key, "parked") or ""
  local held = {}
  for pair in string.gmatch(parked, "%d+:%a+") do
    table.insert(held, pair)
  end
  if #held > 0 then
    redis.call("HSET", cursor_key, "parked",
      (string.match(parked, "^%d+@") or "0@") .. table.concat(held, ","))
  else
    redis.call("HDEL", cursor_key, "parked")
  end
end

-- Write which lanes of a group wait, as `at_ms@slot:until_ms,slot:block,...`; empty: none waits, "=": as it is.
local function write_parked(cursor_key, parked)
  if parked == "" then
    redis.call("HDEL", cursor_key, "parked")
  elseif parked ~= "=" then
    redis.call("HSET", cursor_key, "parked", parked)
  end
end
