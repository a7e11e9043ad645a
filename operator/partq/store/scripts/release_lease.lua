-- Remove a broker's lease as it shuts down, so that nobody waits for its end. Its life and counter
-- stay: the next one continues above them.
--
-- when full: passes
--
-- KEYS[1]  brokers
-- ARGV[1]  broker    ARGV[2]  life that its renewals returned
-- returns  1: removed; 0: there was none, or a later life has renewed
if redis.call("HGET", KEYS[1], "life:" .. ARGV[1]) ~= ARGV[2] then
  return 0
end
return redis.call("HDEL", KEYS[1], "lease:" .. ARGV[1])
