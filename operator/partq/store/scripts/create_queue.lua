-- Make the layout of a queue. A repeat changes nothing.
--
-- KEYS[1]  layout: hash {generations: "1:16", tombstone}
-- ARGV[1]  generations
-- returns  1: made; 0: it was there
return redis.call("HSETNX", KEYS[1], "generations", ARGV[1])
