-- A part of scripts that write what is behind a closed gate, or open it.
--
-- Their caller reads the predecessors first, one by one, so a call may be late: the group may have
-- been reset since, or be another one of the same name. It names the gate and the group that it
-- has read, and nothing is changed where they differ.
--
-- cursor of the group: {born, gate, ...}; gate "0": closed, "R@G": held by a reset; "1", or none: open

-- Return nothing if the gate is closed as the caller has read it. Or what the script returns:
-- 1: it is open; 0 FENCED: the caller's broker epoch is over; -1 GATE_DIFFERS: a reset that the
-- caller has not seen holds it; -2 UNKNOWN: no such group.
local function judge_gate(meta_key, cursor_key, broker_epoch, group, born, gate)
  local epoch, mark = unpack(redis.call("HMGET", meta_key, "broker_epoch", "mark:" .. group))
  if epoch ~= broker_epoch then
    return 0
  end
  local stored_born, stored_gate = unpack(redis.call("HMGET", cursor_key, "born", "gate"))
  if not mark or (stored_born or "0") ~= born then
    return -2
  end
  if not stored_gate or stored_gate == "1" then
    return 1
  end
  if stored_gate ~= gate then
    return -1
  end
end
