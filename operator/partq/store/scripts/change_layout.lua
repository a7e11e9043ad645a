-- Take the layout of a queue one step further, if nobody else has since the caller read it.
--
-- when full: passes
--
-- KEYS[1]  layout: hash {generations, tombstone, revision, generation, last_generation, table, next,
--          lineage, retired, counts, changes, removed:PARTITION}; without a revision it has never changed,
--          which counts as 0
-- ARGV[1]  revision that the caller has read    ARGV[2...]  fields and values; empty: remove it
-- returns  1: written, or a repeat of what is there
--          0 REVISION_DIFFERS: another step is stored
--          -2 UNKNOWN: the queue has no layout, or is being deleted
local layout = KEYS[1]
local generations, has_table, tombstone, revision = unpack(redis.call("HMGET", layout,
  "generations", "table", "tombstone", "revision"))
if not (generations or has_table) or tombstone then
  return -2
end
local following = string.format("%.0f", tonumber(ARGV[1]) + 1)
if revision == following then
  for i = 2, #ARGV, 2 do
    if (redis.call("HGET", layout, ARGV[i]) or "") ~= ARGV[i + 1] then
      return 0
    end
  end
  return 1
end
if (revision or "0") ~= ARGV[1] then
  return 0
end
for i = 2, #ARGV, 2 do
  if ARGV[i + 1] == "" then
    redis.call("HDEL", layout, ARGV[i])
  else
    redis.call("HSET", layout, ARGV[i], ARGV[i + 1])
  end
end
redis.call("HSET", layout, "revision", following)
return 1
