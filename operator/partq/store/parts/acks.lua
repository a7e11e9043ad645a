-- A part of scripts that read what a group has acknowledged above its cursor. The field "acked" of
-- its cursor holds ranges as text, "3-7,9-12", or the byte 0x01 and then one bit for each offset
-- from the cursor on, the lowest bit of a byte first; which of both, its owner decides.

local function has_bits(acked)
  return string.byte(acked or "") == 1
end

-- Return the acknowledged ranges, a list of {first, stop}, rising.
local function acked_ranges(cursor, acked)
  local ranges = {}
  if not has_bits(acked) then
    for first, stop in string.gmatch(acked or "", "(%d+)-(%d+)") do
      table.insert(ranges, {tonumber(first), tonumber(stop)})
    end
    return ranges
  end
  local at, first = tonumber(cursor), nil
  for i = 2, #acked do
    local byte = string.byte(acked, i)
    for _ = 1, 8 do
      local bit = byte % 2
      if bit == 1 then
        first = first or at
      elseif first then
        table.insert(ranges, {first, at})
        first = nil
      end
      byte, at = (byte - bit) / 2, at + 1
    end
  end
  if first then
    table.insert(ranges, {first, at})
  end
  return ranges
end

-- Return the end of the highest acknowledged range; 0: there are no ranges.
local function acked_end(cursor, acked)
  if not has_bits(acked) then
    return tonumber(string.match(string.sub(acked or "", -20), "(%d+)$") or "0")
  end
  local last, length = string.byte(acked, -1), 0
  while last > 0 do
    last, length = math.floor(last / 2), length + 1
  end
  return tonumber(cursor) + 8 * (#acked - 2) + length
end

-- Return whether a group has done with an offset, given as text.
local function is_done(cursor, acked, offset)
  local at = tonumber(offset) - tonumber(cursor)
  if at < 0 then
    return true
  end
  if has_bits(acked) then
    local byte = string.byte(acked, 2 + math.floor(at / 8)) or 0
    return math.floor(byte / 2 ^ (at % 8)) % 2 == 1
  end
  for first, stop in string.gmatch(acked or "", "(%d+)-(%d+)") do
    if tonumber(first) > tonumber(offset) then
      return false
    end
    if tonumber(offset) < tonumber(stop) then
      return true
    end
  end
  return false
end
