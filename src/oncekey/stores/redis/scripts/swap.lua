-- swap: replace a record if it is still the one that was seen, and list it where its new state belongs.
-- KEYS: the sets of records in progress, unknown, failed, and of answers with an end, then the record's key.
-- ARGV: the channel, of the record seen its version, its token (zeros: none) and when it expires (0: never), the new record, when the server deletes it (0: never), the number of its set (0: none), its score there.
-- Answers: now, then DONE, a card, or nothing where no record is.
local channel, version, token, over = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local new, expires_at, set, score = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local key = KEYS[5]
local WAITED, WIDE = 4, 128

-- Whether the record is still the one that was seen, and whether somebody waits for it. Versions start again with each
-- life of a key, and tokens may be cleared: only together with the expiry they tell one life from another.
local function stands(record)
  if is_open(record) then
    local same = (unpack('>I4', record, 3)) == version and sub(record, 39, 54) == token
    return same and (unpack('>I6', record, 33)) == over, byte(record, 19) == 1
  elseif is_small(record) then
    local found = has_flag(record, WIDE) and (unpack('>I4', record, 15)) or byte(record, 15)
    local same = found == version and sub(record, 7, 14) == sub(token, 1, 8)
    return same and over_at(key) == over, has_flag(record, WAITED)
  end
  return false
end

local old = call('GET', key)
if not old then
  return {now, false}
end
local same, waited = stands(old)
if not same then
  return {now, card(key, old)}
end
local written = list_and_set(KEYS[set], score, key, new, expires_at)
if written ~= DONE then
  return {now, written}
end
for i = 1, 4 do
  if i ~= set then
    call('ZREM', KEYS[i], key)
  end
end
if waited then
  pcall('PUBLISH', channel, key)
end
return {now, DONE}
