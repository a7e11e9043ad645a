-- Make the layout of a queue. A repeat changes nothing.
--
-- KEYS[1]  layout: hash {generations: "1:16", tombstone}; with a table that one counts
-- ARGV[1]  generations
-- returns  1: made; 0: it was there
if redis.call("HEXISTS", KEYS[1], "table") == 1 then
  return 0
end
return redis.call("HSETNX", KEYS[1], "generations", ARGV[1])
