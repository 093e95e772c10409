-- forget: take keys off a list whose records are gone: deleted by the server after their time, or by hand.
-- KEYS: the set, then the records' keys.
-- Answers: how many were taken off.
local gone = 0
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    gone = gone + redis.call('ZREM', KEYS[1], KEYS[i])
  end
end
return gone
