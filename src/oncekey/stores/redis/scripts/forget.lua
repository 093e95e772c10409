-- forget: take keys off a list where no record stands that belongs there: deleted by the server after its time or by hand, and perhaps claimed again.
-- KEYS: the set, then the records' keys.
-- ARGV: the states that belong there, as bytes; of completed records only those whose answer has an end.
-- Answers: how many were taken off.
local states = ARGV[1]
local COMPLETED, DUE, HEAD = 3, 8, 68

local function belongs(state)
  return string.find(states, string.char(state), 1, true) ~= nil
end

-- Whether what begins like this stays listed. What a newer version wrote does: whoever can read it may need to find it.
local function stays(found)
  if found == '' then
    return false
  elseif found.err then
    return true
  elseif is_open(found) then
    return belongs(byte(found, 2))
  elseif is_small(found) then
    return byte(found, 1) == SMALL and belongs(COMPLETED) and has_flag(found, DUE)
  end
  return true
end

local gone = 0
for i = 2, #KEYS do
  if not stays(pcall('GETRANGE', KEYS[i], 0, HEAD - 1)) then
    gone = gone + call('ZREM', KEYS[1], KEYS[i])
  end
end
return gone
