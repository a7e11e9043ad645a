-- Write states of keys to a partition whose gate is closed: those of predecessors whose slots it has.
--
-- when full: passes
-- with: gate
-- with: states
--
-- Several calls may be needed. One that begins again removes what an earlier try has written, which
-- may be of the past: nobody else writes states here while the gate is closed.
--
-- KEYS[1]  meta      KEYS[2]  cursor of the group      KEYS[3]  states of the group
-- ARGV[1]  broker epoch that the caller holds    ARGV[2]  group    ARGV[3]  when the group began
-- ARGV[4]  the gate as the caller has read it    ARGV[5]  1: the first call, which begins again; or 0
-- ARGV[6...]  keys and states: see write_states
-- returns  1: written, or the gate is open, so that they were before; else as judge_gate: 0 FENCED,
--          -1 GATE_DIFFERS, -2 UNKNOWN
local answer = judge_gate(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if answer then
  return answer
end
if ARGV[5] == "1" then
  clear_states(KEYS[1], KEYS[2], KEYS[3])
end
write_states(KEYS[1], KEYS[2], KEYS[3], ARGV, 6, #ARGV)
return 1
