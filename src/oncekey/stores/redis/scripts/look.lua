-- look: say what stands under each key, and when.
-- KEYS: the records' keys.
-- Answers: now, then for each key a card, or nothing where no record is.
local answers = {now}
for i = 1, #KEYS do
  local found = pcall('GET', KEYS[i])
  if found and not found.err then
    found = card(KEYS[i], found)
  end
  answers[i + 1] = found
end
return answers
