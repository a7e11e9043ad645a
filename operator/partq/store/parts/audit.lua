-- A part of scripts that change a partition's record: writes what they did into its audit record.
-- A script asks for it by the line `-- with: audit`, and for nothing where meta has no "audit".
--
-- meta, field "audit": "<next sequence> <chain> <bytes of all groups> <broker>" while a record is
-- kept; "audit_off": the same while none is, for the next one to continue from
-- audit: stream; entry id "<sequence>-1"; fields previous, chain, before (bytes of all groups
-- before this one), group: the bytes that wire/audit.py describes
local AUDIT_FIELDS = {"kind", "group", "member", "incarnation", "flow", "epoch", "attempt", "first",
  "stop", "delivery", "cause", "append_broker_epoch", "producer", "number", "target", "flags"}
-- Stands behind the others, where there is one: lines without it keep the bytes that they always had.
local AUDIT_LATER_FIELD = "content_crc"

local function audit_name(text)
  return (string.gsub(text, "[%c%%]", function(special)
    return string.format("%%%02X", string.byte(special))
  end))
end

-- Return the line of a record; numbers are numbers, or text of digits.
local function audit_line(record)
  local texts = {}
  for at, name in ipairs(AUDIT_FIELDS) do
    local value = record[name]
    if type(value) == "number" then
      texts[at] = string.format("%.0f", value)
    else
      texts[at] = audit_name(value or "")
    end
  end
  local later = record[AUDIT_LATER_FIELD]
  if later and later ~= "" then
    table.insert(texts, later)
  end
  return table.concat(texts, "\t") .. "\n"
end

-- Write a group of records, and return the new value of "audit". `time`: as the script has read it
-- already; nil: it has not.
local function write_audit(meta, audit, state, broker_epoch, records, time)
  local sequence, chain, bytes, broker = string.match(state, "^(%d+) (%x+) (%d+) (.*)$")
  time = time or redis.call("TIME")
  local head = string.format("1 %s %.0f %s %s\n", sequence,
    time[1] * 1000 + math.floor(time[2] / 1000), broker_epoch, audit_name(broker))
  local group = head .. table.concat(records)
  local following = redis.sha1hex(chain .. group)
  redis.call("XADD", audit, sequence .. "-1",
    "previous", chain, "chain", following, "before", bytes, "group", group)
  state = string.format("%.0f %s %.0f %s", sequence + 1, following, bytes + #group, broker)
  redis.call("HSET", meta, "audit", state)
  return state
end

-- Return what is new of the broker's own records, and the mark to store with it.
-- The first of `args` from `at` on is the number of the first record, the others are records.
-- `written` is the mark of those that are stored, or were passed over while no record was kept: a
-- repeat of a call writes only the rest.
local function new_records(written, broker_epoch, args, at)
  local epoch, last = string.match(written or "", "^(%d+):(%d+)$")
  local number, records = tonumber(args[at]), {}
  for i = at + 1, #args do
    if epoch ~= broker_epoch or number > tonumber(last) then
      table.insert(records, args[i])
    end
    number = number + 1
  end
  return records, string.format("%s:%.0f", broker_epoch, number - 1)
end

-- Return the records that a partition's record begins with: what was done before.
-- `record`: the fields of meta; `groups`: names; `cursors`: {field, value, ...} of each.
local function first_records(record, groups, cursors)
  local lines = {audit_line({kind = "begin", first = record["trimmed"], stop = record["next"]})}
  for at, group in ipairs(groups) do
    local cursor = {}
    for i = 1, #cursors[at], 2 do
      cursor[cursors[at][i]] = cursors[at][i + 1]
    end
    local function done(first, stop)
      table.insert(lines, audit_line({kind = "begin", group = group, member = cursor["member"],
        incarnation = cursor["incarnation"], epoch = cursor["epoch"], attempt = cursor["attempt"],
        first = first, stop = stop}))
    end
    done("0", cursor["cursor"])
    for _, range in ipairs(acked_ranges(cursor["cursor"], cursor["acked"])) do
      done(range[1], range[2])
    end
    for offset in string.gmatch(cursor["outbox"] or "", "%d+:(%d+):%d+:%d+") do
      done(offset, tonumber(offset) + 1)
    end
  end
  return lines
end

local NO_AUDIT = "0 " .. string.rep("0", 40) .. " 0 "

-- Begin a record, or continue with the one that had ended; return the value of "audit".
local function begin_audit(meta, audit, ended, broker, broker_epoch, records)
  local state = string.match(ended or NO_AUDIT, "^%d+ %x+ %d+ ") .. broker
  redis.call("HDEL", meta, "audit_off")
  return write_audit(meta, audit, state, broker_epoch, records)
end
