-- A part of scripts that write the states of keys: what the members of a group have left of each key.
--
-- states of the group: hash of key to state
-- cursor of the group, field "states": "<count> <bytes>" of these, with their keys; none: no state
-- meta, field "state_bytes": bytes of the states of all groups

-- Note that the states of a group have grown by so many bytes; return how many there are.
local function count_states(meta_key, cursor_key, states_key, grown)
  local count = redis.call("HLEN", states_key)
  local before = tonumber(
    string.match(redis.call("HGET", cursor_key, "states") or "", "^%d+ (%d+)$") or "0")
  local after = count == 0 and 0 or before + grown
  if count == 0 then
    redis.call("HDEL", cursor_key, "states")
  else
    redis.call("HSET", cursor_key, "states", string.format("%.0f %.0f", count, after))
  end
  local total = tonumber(redis.call("HGET", meta_key, "state_bytes") or "0") + after - before
  redis.call("HSET", meta_key, "state_bytes", string.format("%.0f", math.max(0, total)))
  return count
end

-- Set and remove states, and return how many there are then. From place `from` on `args` has a key,
-- and "=" with its state behind it, or "" to remove it; then the next key.
local function write_states(meta_key, cursor_key, states_key, args, from, to)
  local grown = 0
  for at = from, to, 2 do
    local key, state = args[at], args[at + 1]
    if redis.call("HEXISTS", states_key, key) == 1 then
      grown = grown - #key - redis.call("HSTRLEN", states_key, key)
    end
    if state == "" then
      redis.call("HDEL", states_key, key)
    else
      redis.call("HSET", states_key, key, string.sub(state, 2))
      grown = grown + #key + #state - 1
    end
  end
  return count_states(meta_key, cursor_key, states_key, grown)
end

-- Remove all states of a group.
local function clear_states(meta_key, cursor_key, states_key)
  if redis.call("HLEN", states_key) > 0 then
    redis.call("UNLINK", states_key)
    count_states(meta_key, cursor_key, states_key, 0)
  end
end

-- Return the first of the slots "12,4711" that a partition does not take, whose meta has those that
-- it does: "0-2731,4096-8192"; none: no change has taken any away.
local function left_slot(slots, wanted)
  for slot in string.gmatch(slots and wanted or "", "%d+") do
    local is_here = false
    for start, stop in string.gmatch(slots, "(%d+)%-(%d+)") do
      is_here = is_here or (tonumber(start) <= tonumber(slot) and tonumber(slot) < tonumber(stop))
    end
    if not is_here then
      return tonumber(slot)
    end
  end
end
