-- Store how far a group has come in a partition: the broker's whole state, written as it is.
--
-- when full: passes
-- with: audit
-- with: book
-- with: states
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  audit
-- KEYS[4]  states of the group; it may be left out where none are written
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group    ARGV[3]  cursor (offset)
-- ARGV[4]  what is acknowledged above it, as text or bits: see acks.lua
-- ARGV[5]  redelivery counts                     ARGV[6]  which lanes wait: see write_parked
-- ARGV[7]  the highest offset that the caller speaks of, excluded
-- ARGV[8]  number of this write under this epoch    ARGV[9]  when the group began
-- ARGV[10]  how many arguments are states: keys and states, see write_states
-- ARGV[11]  slots of those that came without an ack of a message that is open; empty: of none
-- then     the states; number of the first audit record under this epoch; audit records
-- returns  1, or where it has written states {how many there are}
--          {-8 STATES_LEFT, slot}: a change of the partition count has taken a slot of ARGV[11]
--          away: states of it may be in another partition by now; nothing is written
--          0 FENCED: the caller's broker epoch is over, or the log does not hold what the caller
--          speaks of; -2 UNKNOWN: no such group; -3 SUPERSEDED: a later write is stored

local meta, refusal = read_owned(KEYS[1], ARGV[1], ARGV[2], "next", "audit", "trimmed", "slots")
if not meta then
  return refusal
end
if tonumber(ARGV[7]) > tonumber(meta[3]) or tonumber(ARGV[3]) < tonumber(meta[5]) then
  return 0
end
local cursor = redis.call("HMGET", KEYS[2], "outbox_lowest", "audit_written", "flushed", "born")
local verdict = judge_write(cursor[3], cursor[4], ARGV[1], ARGV[8], ARGV[9])
if verdict < 1 then
  return verdict == 0 and 1 or verdict
end
local left = left_slot(meta[6], ARGV[11])
if left then
  return {-8, left}
end
redis.call("HSET", KEYS[2], "cursor", ARGV[3], "acked", ARGV[4], "redeliveries", ARGV[5],
  "flushed", ARGV[1] .. ":" .. ARGV[8])
write_parked(KEYS[2], ARGV[6])
write_mark(KEYS[1], ARGV[2], ARGV[3], cursor[1])
local audit_at = 12 + tonumber(ARGV[10])
local state_count
if audit_at > 12 then
  state_count = write_states(KEYS[1], KEYS[2], KEYS[4], ARGV, 12, audit_at - 1)
end
if ARGV[audit_at + 1] then
  local records, written = new_records(cursor[2], ARGV[1], ARGV, audit_at)
  if #records > 0 then
    if meta[4] then
      write_audit(KEYS[1], KEYS[3], meta[4], ARGV[1], records)
    end
    redis.call("HSET", KEYS[2], "audit_written", written)
  end
end
return state_count and {state_count} or 1
