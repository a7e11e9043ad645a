-- A part of scripts that read the entries which wait, page by page.

-- Return the rank in `due` behind an entry: its time in ms, and its number (16 digits), as text. By
-- halves: members of one time are sorted, and the entry may be gone.
local function rank_behind(due, due_ms, number)
  local low = redis.call("ZCOUNT", due, "-inf", "(" .. due_ms)
  local high = redis.call("ZCOUNT", due, "-inf", due_ms)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if redis.call("ZRANGE", due, middle, middle)[1] > number then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
