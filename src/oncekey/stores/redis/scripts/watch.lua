-- watch: mark a record in progress as waited for, in the same step that looks; its end will then be published.
-- KEYS: the record's key.
-- Answers: now, then a card, or nothing where no record is.
local key = KEYS[1]
local found = call('GET', key)
if found and is_open(found) and byte(found, 2) <= 2 and byte(found, 19) == 0 then
  call('SETRANGE', key, 18, '\1')
  found = sub(found, 1, 18) .. '\1' .. sub(found, 20)
end
return {now, found and card(key, found)}
