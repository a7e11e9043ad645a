-- Renew a broker's lease. The first renewal of a new life of the broker ends its older lives: those
-- that it has read, so that one which arrives late ends none that came after it.
--
-- when full: passes
-- with: draw
--
-- KEYS[1]  brokers: hash {lease:BROKER → JSON, counter:BROKER, life:BROKER, features:BROKER,
--          owner:PARTITION → BROKER}
-- ARGV[1]  broker    ARGV[2]  life that an earlier renewal returned, 0: the first one
-- ARGV[3]  what others are to know of the broker (JSON), the same in all renewals of a life
-- ARGV[4]  with life 0: the recorded one as it was read before, 0: none
-- ARGV[5]  its incarnation, and what it can do that other versions cannot: "INCARNATION rescale"
-- returns  {life, counter}: the counter never falls and differs from all before it
--          0: a later life of the broker has renewed
--          -1: another life is recorded than was read
local life_field, counter_field = "life:" .. ARGV[1], "counter:" .. ARGV[1]
local lease_field = "lease:" .. ARGV[1]
local stored = redis.call("HMGET", KEYS[1], life_field, counter_field, lease_field)
local stored_life, life = tonumber(stored[1] or "0"), tonumber(ARGV[2])
if life == 0 then
  if stored[3] == ARGV[3] then
    life = stored_life  -- an earlier try of this life went through, and nobody heard of it
  elseif stored_life ~= tonumber(ARGV[4]) then
    return -1
  else
    life = draw_above(stored[1])
  end
elseif stored_life > life then
  return 0
end
local counter = draw_above(stored[2])
redis.call("HSET", KEYS[1], life_field, string.format("%.0f", life),
  counter_field, string.format("%.0f", counter), lease_field, ARGV[3],
  "features:" .. ARGV[1], ARGV[5])
return {life, counter}
