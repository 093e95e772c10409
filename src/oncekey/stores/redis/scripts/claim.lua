-- claim: take each key that has no record, under the server's time, and list it; of the others, say what stands there.
-- KEYS: the set of records in progress, then a key for each claim.
-- ARGV: for each claim its record, with the lease's length in the place of its end.
-- Answers: now, then for each claim DONE or a card.
local answers = {now}
for i = 2, #KEYS do
  local key, record = KEYS[i], ARGV[i - 1]
  local found = pcall('GET', key)
  if not found then
    local lease_until = now + unpack('>I6', record, 7)
    record = sub(record, 1, 6) .. pack('>I6I6', lease_until, now) .. sub(record, 19)
    found = list_and_set(KEYS[1], lease_until, key, record, 0)
  elseif not found.err then
    found = card(key, found)
  end
  answers[i] = found
end
return answers
