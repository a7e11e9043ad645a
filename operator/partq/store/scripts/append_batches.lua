-- Append batches to a partition's log, each judged on its own, as the next call of a chain.
--
-- with: audit
-- with: draw
--
-- A batch may wait for its time: it is parked beside the log, as an entry with a number. The owner
-- appends it when it is due, by this script, too. A batch may have an id: another one of the same
-- id is not stored for a time. `extras` asks for both; without it a batch costs nothing of that.
--
-- KEYS[1]  meta
-- KEYS[2]  log: stream; entry id "<first offset>-1"; fields n, broker_epoch, at_ms (of Redis's
--          time, never falling), before (bytes of all batches before this one), batch, and where
--          its messages have a time to live ttl_ms; where they are numbered ttl_ms (0: none), producer
--          and number (of the first message). Earlier versions read fields by their places, so
--          that new ones stand at the end; their entries have neither of the last two
-- KEYS[3]  producers: hash NAME → "<due> <used_ms> [#<digest>] <first>:<count>:<offset> ..." (the
--          last 5 batches); `used_ms` is of the time that has passed here (ARGV[5]). A batch that has
--          no offset, as it was parked or its id was known, is "@<first>:<count>:<number of the
--          entry, or -1>:<digest>"
-- KEYS[4]  audit
-- KEYS[5]  series: as producers, of those that number by key; they do not push each other out
-- KEYS[6]  due: sorted set of the entries' numbers, 16 digits each, by when they are due, in ms
-- KEYS[7]  scheduled: hash number, 16 digits → "<ttl_ms> <bytes of a batch>", or
--          "<ttl_ms>#<id> <bytes of a batch>"; meta, field "scheduled_bytes": of these batches.
--          Field "scheduled_number": the number that was drawn last
-- KEYS[8]  ids: sorted set of ids, 16 bytes each, by when they were known, as at_ms
-- KEYS[9]  id entries: hash id, 32 hex digits → number of the entry that was parked with it and
--          waits still, if no later message has made the id known again
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  number of the call under this epoch
-- ARGV[3]  offset that the first message is to have
-- ARGV[4]  the most bytes that the call may add, -1: no limit
-- ARGV[5]  how many ms have passed, at least, since the caller's last call, or its claim
-- ARGV[6]  for how many ms an id is known    ARGV[7]  how many ids may be known; 0: none are kept
-- ARGV[8...]  of each batch: producer (empty: not numbered), first number, count, bytes (empty: of
--          slots that have left the partition: only a repeat is answered as ever), time to
--          live in ms (0: none), digest "<crc>.<crc of slots and ends>.<1: compressed>" (empty:
--          none), how many ms ago it was first sent (0: never before), CRC-32C of the body as it
--          expands, for the audit record (empty: none), the number that is due where there is no record
--          of the producer, as a predecessor of the partition says (empty: none does), extras
-- extras   empty, or "<kind> <due_ms> <after_ms> <id>". Kinds: `append`; `schedule`: to be parked
--          until due_ms, or for after_ms if due_ms is 0, or stored if that is over; `park`: parked
--          also if it is over; `enqueue`: the entry with the first number, which is not numbered
--          otherwise. Id: 32 hex digits or "-"
-- returns  text "<next> <at_ms> <verdict> ...", one verdict per batch, "<letter>:<offset>:<due>":
--          S stored, D duplicate, R resend_from, O out_of_sequence, U unknown_producer,
--          N number_reused, Q quota_exceeded, M moved: not stored, and never will be; -1 where
--          there is no such number. The same again for a repeat.
--          Some have more behind it, ":<entry>:<ms>", with -1 where there is nothing to say:
--          P parked (its number, when it is due), D (the number of what was parked), I known id: not
--          stored (the number of the entry that waits), G gone: no entry of this number is due,
--          Q too many ids are known (in how many ms the oldest is known no more)
--          0 FENCED: the caller's broker epoch is over
--          -1 END_DIFFERS: the log ends elsewhere, or the number is old
local IDLE_MS = 24 * 3600 * 1000
local MAX_PRODUCERS = 10000
local MAX_SERIES = 20000
-- A repeat that was under way for this long, beside its age, is still judged rightly.
local SLACK_MS = 120 * 1000
local REMEMBERED = 5
local SAMPLE = 16
-- So many ids that are known no more go with a call that brings new ones.
local FORGOTTEN_IDS = 64
local HEADER_SIZE = 22
-- Outboxes of dead letters, and replays of them: one batch at a time, numbered with gaps, never
-- pushed out by others. Both may repeat a letter however late: they are not forgotten by age either
-- (but with a partition that is removed, a day later: `erase_partition`).
local SPARSE = "dlq:"
-- How the name of a replay ended under earlier versions, which repeated within a day.
local REPLAY = "@%d+/$"
-- Between producer and key in the name of a series.
local SEPARATOR = "\31"

local meta, log, producers, series = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local record = redis.call("HMGET", meta,
  "broker_epoch", "append_number", "next", "total_bytes", "at_ms", "largest_bytes",
  "audit", "producers_forgotten_ms", "series_forgotten_ms", "passed_ms")
if record[1] ~= ARGV[1] then
  return 0
end
if record[2] == ARGV[2] then
  return redis.call("HGET", meta, "append_answer")
end
if record[3] ~= ARGV[3] or tonumber(ARGV[2]) < tonumber(record[2]) then
  return -1
end

local time = redis.call("TIME")
local at = math.max(time[1] * 1000 + math.floor(time[2] / 1000), tonumber(record[5]))
local at_ms = string.format("%.0f", at)
-- What is due is judged by this: it may fall, where `at` does not.
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Records of producers age by the time that the owners have seen pass, which never runs ahead of the
-- true one. Redis's clock may jump: a record that had to go would seem older than a repeat. It
-- begins where an earlier version stopped, which aged them by that clock.
local start = tonumber(record[5]) > 0 and record[5] or at_ms
local passed = tonumber(record[10] or start) + tonumber(ARGV[5])
local passed_ms = string.format("%.0f", passed)
local next_offset = tonumber(record[3])
local total, room = tonumber(record[4]), tonumber(ARGV[4])
local largest = tonumber(record[6])

-- known[name]: {due, batches = {{first, count, offset, digest}, ...} newest last, is_elsewhere};
-- false: no record
local known, changed, verdicts, records = {}, {}, {}, {}
local due, scheduled, ids, id_entries = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local window, max_ids = tonumber(ARGV[6]), tonumber(ARGV[7])
-- Bytes that the call has added: stored, or parked. What was parked before does not count again.
local added = 0
-- By how much the bytes of entries have grown; the number of the last one that was parked here.
local parked_bytes, parked_number = 0, nil
local are_ids_swept = false
-- Names of sparse producers of which a batch was refused. Their numbers have gaps, so one that was
-- stored behind it would make it look like a repeat without end.
local held_up = {}
-- When the youngest record of a table that had to go was used last.
local forgotten = {[producers] = tonumber(record[8] or "-1"), [series] = tonumber(record[9] or "-1")}

local function table_of(name)
  return string.find(name, SEPARATOR, 1, true) and series or producers
end

local function recall(name)
  local state = known[name]
  if state == nil then
    local place = table_of(name)
    local text = redis.call("HGET", place, name)
    local is_elsewhere = false
    if not text and place == series then
      -- An earlier version had all in one table.
      text = redis.call("HGET", producers, name)
      is_elsewhere = text and true
    end
    state = false
    if text then
      state = {due = tonumber(string.match(text, "^%d+")), batches = {}, is_elsewhere = is_elsewhere}
      local digest = ""
      for word in string.gmatch(text, "%S+") do
        local first, count, offset = string.match(word, "^(%d+):(%d+):(%d+)$")
        if first then
          table.insert(state.batches, {tonumber(first), tonumber(count), tonumber(offset), digest})
          digest = ""
        elseif string.sub(word, 1, 1) == "@" then
          local numbers = {string.match(word, "^@(%d+):(%d+):(%-?%d+):(.*)$")}
          table.insert(state.batches,
            {tonumber(numbers[1]), tonumber(numbers[2]), -1, numbers[4], tonumber(numbers[3])})
        elseif string.sub(word, 1, 1) == "#" then
          digest = string.sub(word, 2)
        end
      end
    end
    known[name] = state
  end
  return state
end

local function is_sparse(name)
  return string.sub(name, 1, #SPARSE) == SPARSE
end

local function repeats_late(name)
  return is_sparse(name) and not string.find(name, REPLAY)
end

local function verdict(letter, offset, due, entry, ms)
  local text = string.format("%s:%.0f:%.0f", letter, offset, due)
  if entry then
    text = string.format("%s:%.0f:%.0f", text, entry, ms)
  end
  table.insert(verdicts, text)
end

-- Return the offset of messages that are stored, and the entry that they were parked as.
local function place_of(state, first, count)
  for _, batch in ipairs(state.batches) do
    if batch[1] <= first and first + count <= batch[1] + batch[2] then
      if batch[5] then
        return -1, batch[5]
      end
      return batch[3] + first - batch[1]
    end
  end
  return -1
end

-- Whether numbers that are known came before with other messages. Bytes may differ by their
-- compression alone; then the slots and sizes of the messages decide. What was cut otherwise
-- cannot be compared.
local function is_reused(state, first, count, digest)
  local crc, outline, is_compressed = string.match(digest, "^(%x+)%.(%x+)%.(%d)$")
  for _, batch in ipairs(state.batches) do
    if crc and batch[1] == first and batch[2] == count and batch[4] ~= digest then
      local old_crc, old_outline, was_compressed = string.match(batch[4], "^(%x+)%.(%x+)%.(%d)$")
      return old_crc ~= nil and old_crc ~= crc
        and (old_outline ~= outline or (is_compressed == "0" and was_compressed == "0"))
    end
  end
  return false
end

-- Whether a producer without a record may be one whose record had to go since the batch was first
-- sent. What was never sent before is not stored, whichever record has gone.
local function may_be_forgotten(name, age)
  return age > 0 and forgotten[table_of(name)] >= passed - age - SLACK_MS
end

-- Return whether an id is known, and the entry that waits with it; else in how many ms there is
-- room for it; nil: now.
local function judge_id(id, id_bytes)
  local since = string.format("%.0f", at - window)
  local score = redis.call("ZSCORE", ids, id_bytes)
  if score and tonumber(score) > at - window then
    return true, tonumber(redis.call("HGET", id_entries, id) or "-1")
  end
  if not are_ids_swept then
    are_ids_swept = true
    local old = redis.call("ZCOUNT", ids, "-inf", since)
    if old > 0 then
      redis.call("ZREMRANGEBYRANK", ids, 0, math.min(old, FORGOTTEN_IDS) - 1)
    end
  end
  if redis.call("ZCARD", ids) >= max_ids
    and redis.call("ZCOUNT", ids, "(" .. since, "+inf") >= max_ids then
    local oldest = redis.call("ZRANGEBYSCORE", ids, "(" .. since, "+inf", "WITHSCORES", "LIMIT", 0, 1)
    return false, math.max(1, tonumber(oldest[2]) + window - at)
  end
  return false, nil
end

-- Keep a batch beside the log until it is due; return the number of the entry.
local function park(due_at, ttl_ms, id, bytes)
  parked_number = parked_number and parked_number + 1
    or draw_above(redis.call("HGET", meta, "scheduled_number"))
  local number = string.format("%016.0f", parked_number)
  redis.call("ZADD", due, string.format("%.0f", due_at), number)
  redis.call("HSET", scheduled, number, ttl_ms .. (id and "#" .. id or "") .. " " .. bytes)
  if id then
    redis.call("HSET", id_entries, id, string.format("%.0f", parked_number))
  end
  parked_bytes = parked_bytes + #bytes
  added = added + #bytes
  return parked_number
end

-- Remove an entry that is due: it is in the log from now on. Return false if there is no such one.
local function take_entry(number, id, bytes)
  local member = string.format("%016.0f", number)
  local due_at = redis.call("ZSCORE", due, member)
  if not due_at or tonumber(due_at) > now then
    return false
  end
  redis.call("ZREM", due, member)
  redis.call("HDEL", scheduled, member)
  if id and tonumber(redis.call("HGET", id_entries, id) or "-1") == number then
    redis.call("HDEL", id_entries, id)
  end
  parked_bytes = parked_bytes - #bytes
  return true
end

-- Take a batch into the record of its producer. `entry`: of one without an offset, the number of the
-- entry, or -1.
local function remember(state, name, first, count, offset, digest, entry)
  state.due = first + count
  table.insert(state.batches, {first, count, offset, digest, entry})
  if #state.batches > REMEMBERED then
    table.remove(state.batches, 1)
  end
  if not known[name] then
    known[name], changed[name] = state, "new"
  end
  changed[name] = changed[name] or "old"
end

local function refuse(name, state, ms)
  verdict("Q", -1, state and state.due or -1, ms and -1, ms)
  if is_sparse(name) then
    held_up[name] = true
  end
end

for i = 8, #ARGV, 10 do
  local name, first, count, bytes = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3]
  local extras = ARGV[i + 9]
  local kind, due_at, id, id_bytes = "", 0, nil, nil
  if extras ~= "" then
    local due_ms, after_ms, hex
    kind, due_ms, after_ms, hex = string.match(extras, "^(%l+) (%d+) (%d+) (%S+)")
    if kind == "schedule" or kind == "park" then
      due_at = due_ms == "0" and now + tonumber(after_ms) or tonumber(due_ms)
    end
    if hex ~= "-" and (max_ids > 0 or kind == "enqueue") then
      id = hex
      id_bytes = string.gsub(hex, "%x%x", function(pair)
        return string.char(tonumber(pair, 16))
      end)
    end
  end
  local state = nil
  local is_due = true
  if name ~= "" then
    state = recall(name)
    is_due = false
    -- Where records had to go, this one may have been among them, with numbers above those.
    if not state and ARGV[i + 8] ~= "" and forgotten[table_of(name)] < 0 then
      state = {due = tonumber(ARGV[i + 8]), batches = {}}
    end
    if held_up[name] and not (state and first + count <= state.due) then
      verdict("O", -1, state and state.due or -1)
    elseif not state then
      if is_sparse(name) or (first == 0 and not may_be_forgotten(name, tonumber(ARGV[i + 6]))) then
        is_due = true
        if bytes ~= "" then
          state = {due = first, batches = {}}
          known[name] = state
          changed[name] = "new"
        end
      else
        verdict("U", -1, -1)
      end
    elseif first == state.due or (first > state.due and is_sparse(name)) then
      is_due = true
    elseif first > state.due then
      verdict("O", -1, state.due)
    elseif first + count <= state.due and not is_sparse(name)
      and is_reused(state, first, count, ARGV[i + 5]) then
      verdict("N", -1, state.due)
    elseif first + count <= state.due then
      local offset, entry = place_of(state, first, count)
      verdict("D", offset, state.due, entry, -1)
    else
      verdict("R", -1, state.due)
    end
  end
  local is_known, detail = false, nil
  if is_due and id and bytes ~= "" and kind ~= "enqueue" then
    is_known, detail = judge_id(id, id_bytes)
  end
  if is_due and bytes == "" then
    verdict("M", -1, state and state.due or -1)
    if is_sparse(name) then
      held_up[name] = true
    end
  elseif is_due and is_known then
    if state then
      remember(state, name, first, count, -1, ARGV[i + 5], detail)
    end
    verdict("I", -1, state and state.due or -1, detail, -1)
    if record[7] then
      table.insert(records, audit_line({kind = "known_id", first = state and first,
        stop = state and first + count, producer = name}))
    end
  elseif is_due and detail then
    refuse(name, state, detail)
  elseif is_due and kind == "enqueue" and not take_entry(first, id, bytes) then
    verdict("G", -1, -1, first, -1)
  elseif is_due and kind ~= "enqueue" and room >= 0 and added + #bytes > room then
    refuse(name, state)
  elseif is_due and (due_at > now or kind == "park") then
    local number = park(due_at, ARGV[i + 4], id, bytes)
    if id then
      redis.call("ZADD", ids, at_ms, id_bytes)
    end
    if state then
      remember(state, name, first, count, -1, ARGV[i + 5], number)
    end
    verdict("P", -1, state and state.due or -1, number, due_at)
    if record[7] then
      local start = state and first or 0
      table.insert(records, audit_line({kind = "schedule", first = start, stop = start + count,
        producer = name, number = number, target = string.format("%.0f", due_at),
        content_crc = ARGV[i + 7]}))
    end
  elseif is_due then
    local fields = {"n", ARGV[i + 2], "broker_epoch", ARGV[1], "at_ms", at_ms,
      "before", string.format("%.0f", total), "batch", bytes}
    if ARGV[i + 4] ~= "0" or state then
      table.insert(fields, "ttl_ms")
      table.insert(fields, ARGV[i + 4])
    end
    if state then
      table.insert(fields, "producer")
      table.insert(fields, name)
      table.insert(fields, "number")
      table.insert(fields, ARGV[i + 1])
    end
    redis.call("XADD", log, string.format("%.0f-1", next_offset), unpack(fields))
    local entry = nil
    if kind == "enqueue" then
      entry = first
    else
      added = added + #bytes
      if id then
        redis.call("ZADD", ids, at_ms, id_bytes)
        redis.call("HDEL", id_entries, id)
      end
    end
    if state then
      remember(state, name, first, count, next_offset, ARGV[i + 5])
    end
    verdict("S", next_offset, state and state.due or -1)
    if record[7] then
      -- The slots of a batch stand behind its header.
      table.insert(records, audit_line({kind = "publish", first = next_offset,
        stop = next_offset + count, append_broker_epoch = ARGV[1], producer = name,
        number = entry or (state and first), flags = entry and "scheduled",
        content_crc = ARGV[i + 7]}))
      table.insert(records, string.sub(bytes, HEADER_SIZE + 1, HEADER_SIZE + 2 * count))
    end
    next_offset = next_offset + count
    total = total + #bytes
    largest = math.max(largest, #bytes)
  end
end

local function forget(place, name, used_at)
  redis.call("HDEL", place, name)
  forgotten[place] = math.max(forgotten[place], used_at)
end

for name, age in pairs(changed) do
  local state, place = known[name], table_of(name)
  local texts = {string.format("%.0f %s", state.due, passed_ms)}
  for _, batch in ipairs(state.batches) do
    if batch[5] then
      table.insert(texts, string.format("@%.0f:%.0f:%.0f:%s", batch[1], batch[2], batch[5], batch[4]))
    else
      if batch[4] ~= "" then
        table.insert(texts, "#" .. batch[4])
      end
      table.insert(texts, string.format("%.0f:%.0f:%.0f", batch[1], batch[2], batch[3]))
    end
  end
  redis.call("HSET", place, name, table.concat(texts, " "))
  if state.is_elsewhere then
    redis.call("HDEL", producers, name)
  end
  if age == "new" then
    -- A new one pays for the clean-up: of a few at random those that are idle for too long go,
    -- and the one that is idle the longest when there are too many.
    local sample = redis.call("HRANDFIELD", place, SAMPLE, "WITHVALUES")
    local limit = place == series and MAX_SERIES or MAX_PRODUCERS
    local is_above = redis.call("HLEN", place) > limit
    local oldest, oldest_at
    for i = 1, #sample, 2 do
      local used_at = tonumber(string.match(sample[i + 1], "^%d+ (%d+)"))
      if not known[sample[i]] and not repeats_late(sample[i]) then
        if passed - used_at > IDLE_MS then
          forget(place, sample[i], used_at)
          is_above = false
        elseif not is_sparse(sample[i]) and (not oldest or used_at < oldest_at) then
          oldest, oldest_at = sample[i], used_at
        end
      end
    end
    if is_above and oldest then
      forget(place, oldest, oldest_at)
    end
  end
end
for place, field in pairs({[producers] = "producers_forgotten_ms", [series] = "series_forgotten_ms"}) do
  if forgotten[place] >= 0 then
    redis.call("HSET", meta, field, string.format("%.0f", forgotten[place]))
  end
end

if parked_number then
  redis.call("HSET", meta, "scheduled_number", string.format("%.0f", parked_number))
end
if parked_bytes ~= 0 then
  local bytes = tonumber(redis.call("HGET", meta, "scheduled_bytes") or "0") + parked_bytes
  redis.call("HSET", meta, "scheduled_bytes", string.format("%.0f", math.max(0, bytes)))
end
local answer = string.format("%.0f %s %s", next_offset, at_ms, table.concat(verdicts, " "))
redis.call("HSET", meta, "next", string.format("%.0f", next_offset),
  "total_bytes", string.format("%.0f", total), "largest_bytes", string.format("%.0f", largest),
  "at_ms", at_ms, "passed_ms", passed_ms, "append_number", ARGV[2], "append_answer", answer)
if #records > 0 then
  -- Of the time that the messages have: they are compared with their record.
  write_audit(meta, KEYS[4], record[7], ARGV[1], records, time)
end
return answer
