-- Note which node of how many a member of a client-assigned group is, or that it no longer is one.
--
-- when full: passes
-- with: term
--
-- KEYS[1]  members of the group: hash {member:MEMBER, node:MEMBER → "<count> <id> <incarnation>",
--          ended:MEMBER → the last incarnations that were replaced or said that they end, by lines}
-- KEYS[2]  config of the group
-- ARGV[1]  member           ARGV[2]  its incarnation
-- ARGV[3]  number of nodes; empty: it no longer is a node; below 0: it is not compared with others
-- ARGV[4]  its number among them, from 0
-- returns  {1}; {0}: the group is not recorded; {-1}: the member is not listed;
--          {-2, member, its number of nodes}: that one says another; {-3, member}: that one has the
--          id; {-4}: the incarnation has ended; {-5, incarnation}: another one is the node, and
--          stays it. Nothing is written for the first five of these.
--
-- What is noted of a member counts as long as the member is listed: its number is free when it is
-- not, also if no process was left to say so.
if judge_term(KEYS[2], "") < 1 then
  return {0}
end
local own, ended = "node:" .. ARGV[1], "ended:" .. ARGV[1]
local before = redis.call("HGET", KEYS[1], own)
local speaker = before and string.match(before, "^%-?%d+ %-?%d+ (.*)$")
local is_listed = redis.call("HEXISTS", KEYS[1], "member:" .. ARGV[1]) == 1
local over = {}
for each in string.gmatch(redis.call("HGET", KEYS[1], ended) or "", "[^\n]+") do
  table.insert(over, each)
end
local function note_end(incarnation)
  for _, each in ipairs(over) do
    if each == incarnation then
      return
    end
  end
  table.insert(over, incarnation)
  if #over > 16 then
    table.remove(over, 1)
  end
  redis.call("HSET", KEYS[1], ended, table.concat(over, "\n"))
end
if ARGV[3] == "" then
  -- A late word of an earlier process says nothing of the one that is there now.
  if speaker == ARGV[2] then
    redis.call("HDEL", KEYS[1], own)
  end
  if is_listed then
    note_end(ARGV[2])
  end
  if speaker and speaker ~= ARGV[2] then
    return {-5, speaker}
  end
  return {1}
end
if not is_listed then
  return {-1}
end
for _, each in ipairs(over) do
  if each == ARGV[2] then
    return {-4}
  end
end
if tonumber(ARGV[3]) >= 0 then
  local fields = redis.call("HGETALL", KEYS[1])
  local listed = {}
  for i = 1, #fields, 2 do
    listed[fields[i]] = true
  end
  for i = 1, #fields, 2 do
    local other = string.match(fields[i], "^node:(.*)$")
    if other and other ~= ARGV[1] and listed["member:" .. other] then
      local count, id = string.match(fields[i + 1], "^(%-?%d+) (%-?%d+) ")
      if tonumber(count) >= 0 and count ~= ARGV[3] then
        return {-2, other, tonumber(count)}
      end
      if tonumber(count) >= 0 and id == ARGV[4] then
        return {-3, other}
      end
    end
  end
end
if speaker and speaker ~= ARGV[2] then
  note_end(speaker)
end
redis.call("HSET", KEYS[1], own, ARGV[3] .. " " .. ARGV[4] .. " " .. ARGV[2])
return {1}
