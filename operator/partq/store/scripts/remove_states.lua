-- Remove states of keys from a predecessor: its successor has them, and its gate is open.
--
-- when full: passes
-- with: states
--
-- The slots of the keys have left, and the group has done with their messages here: no ack comes
-- any more that would leave a state of them.
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  states of the group
-- ARGV[1]  G: generation of the change that has taken the slots away
-- ARGV[2...]  each key, and "" behind it
-- returns  1: they are gone; 0: the slots have not left, or there is no such group
local sealed = redis.call("HGET", KEYS[1], "seal:" .. ARGV[1])
if not sealed or redis.call("EXISTS", KEYS[2]) == 0 then
  return 0
end
write_states(KEYS[1], KEYS[2], KEYS[3], ARGV, 2, #ARGV)
return 1
