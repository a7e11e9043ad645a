-- A part of scripts that write what Redis holds for a group as a whole. Each coordinator that begins
-- draws a term of the group, above all before it. One that was replaced, and does not know it yet,
-- names an older term: whatever it writes late, it writes nothing over its successor. The terms of a
-- group end with it: one that is created again has none until a coordinator begins with it.
--
-- config of the group, field "coordinator_term": the highest term that was drawn

-- Return 1: the group is stored, and the term is not over; 0: there is no such group; -1: another
-- coordinator has begun, or is to, as the group was created again, or Redis lost its last writes. An
-- empty term is not compared: nobody's, or of a caller that has none. Others must be equal: those of
-- an earlier group may be higher, if Redis's clock was set back.
local function judge_term(config, term)
  if redis.call("HEXISTS", config, "json") == 0 then -- at most its begin is there
    return 0
  end
  return (term == "" or term == redis.call("HGET", config, "coordinator_term")) and 1 or -1
end
