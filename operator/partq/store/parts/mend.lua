-- A part of scripts that read cursors: mends what speaks of messages that the log does not hold, as
-- a backup that was put back leaves it, or a change by hand. Nobody could ever read them.

-- Bring a group's cursor, outbox and redelivery counts into [first, next), and its mark with them.
-- Returns nil when all was well, else {group, cursor before, cursor now, dead letters dropped, ...},
-- and the records that report it.
local function mend_cursor(meta, key, group, first, next)
  local before, acked, outbox, epoch, redeliveries =
    unpack(redis.call("HMGET", key, "cursor", "acked", "outbox", "epoch", "redeliveries"))
  first, next = tonumber(first), tonumber(next)
  local cursor = math.max(first, math.min(tonumber(before), next))
  local kept, lost, lowest = {}, {}, math.huge
  for entry, offset in string.gmatch(outbox or "", "(%d+:(%d+):%d+:%d+)") do
    if tonumber(offset) < first or tonumber(offset) >= next then
      table.insert(lost, offset)
    else
      table.insert(kept, entry)
      lowest = math.min(lowest, tonumber(offset))
    end
  end
  -- A count beyond the end makes a dead letter of a message that is not there, or not there yet.
  local counts, is_beyond = {}, false
  for entry, offset in string.gmatch(redeliveries or "", "((%d+):%d+)") do
    if tonumber(offset) >= next then
      is_beyond = true
    elseif tonumber(offset) >= first then
      table.insert(counts, entry)
    end
  end
  local last_end = acked_end(before, acked)
  if cursor == tonumber(before) and #lost == 0 and last_end <= next and not is_beyond then
    return nil, {}
  end
  local text = string.format("%.0f", cursor)
  redis.call("HSET", key, "cursor", text, "outbox", table.concat(kept, ","),
    "outbox_lowest", #kept > 0 and string.format("%.0f", lowest) or "",
    "redeliveries", table.concat(counts, ","))
  if last_end > next then
    redis.call("HSET", key, "acked", "")
  elseif has_bits(acked) then
    -- The bits begin at the cursor that was.
    local ranges = {}
    for _, range in ipairs(acked_ranges(before, acked)) do
      if range[2] > cursor then
        table.insert(ranges, string.format("%.0f-%.0f", math.max(range[1], cursor), range[2]))
      end
    end
    redis.call("HSET", key, "acked", table.concat(ranges, ","))
  end
  redis.call("HSET", meta, "mark:" .. group, string.format("%.0f", math.min(cursor, lowest)))
  local found, records = {group, before, text}, {}
  if cursor ~= tonumber(before) then
    table.insert(records, audit_line({kind = "reset", group = group, epoch = epoch, first = cursor,
      stop = cursor, number = before, cause = "not_in_log"}))
  end
  for _, offset in ipairs(lost) do
    table.insert(found, offset)
    table.insert(records, audit_line({kind = "dead_letter", group = group, first = offset,
      stop = tonumber(offset) + 1, cause = "not_in_log", flags = "lost"}))
  end
  return found, records
end
