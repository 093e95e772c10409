-- put: write each record whole where none stands, and list it where it belongs; of the others, say what stands there.
-- KEYS: the sets of records in progress, unknown, failed, and of answers with an end, then the records' keys.
-- ARGV: for each record its bytes, when the server deletes it (0: never), the number of its set (0: none), its score there.
-- Answers: now, then for each record DONE or a card.
local answers = {now}
for i = 5, #KEYS do
  local key, at = KEYS[i], (i - 5) * 4
  local found = pcall('GET', key)
  if not found then
    found = list_and_set(KEYS[tonumber(ARGV[at + 3])], ARGV[at + 4], key, ARGV[at + 1], tonumber(ARGV[at + 2]))
  elseif not found.err then
    found = card(key, found)
  end
  answers[i - 3] = found
end
return answers
