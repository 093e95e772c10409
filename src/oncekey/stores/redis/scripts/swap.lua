-- swap: replace a record if its version is still the one that was seen, and list it where its new state belongs.
-- KEYS: the sets of records in progress, unknown, failed, and of answers with an end, then the record's key.
-- ARGV: the channel, the version seen, the new record, when the server deletes it (0: never), the number of its set (0: none), its score there.
-- Answers: now, then DONE, a card, or nothing where no record is.
local channel, seen, new, expires_at, set, score = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local key = KEYS[5]

local function is_small(record)
  local layout = byte(record, 1)
  return (layout == SMALL or layout == SMALL_EXPIRED) and #record >= 18
end

-- The record's version, and whether somebody waits for it; no version if the layout is not known.
local function version_of(record)
  if is_open(record) then
    return (unpack('>I4', record, 3)), byte(record, 19) == 1
  elseif is_small(record) then
    local flags = byte(record, 2)
    return flags >= 128 and (unpack('>I4', record, 15)) or byte(record, 15), math.floor(flags / 4) % 2 == 1
  end
end

local old = call('GET', key)
if not old then
  return {now, false}
end
local version, waited = version_of(old)
if version ~= seen then
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
