-- settle: record how each attempt ended, if its token still stands there and the table has a row for it.
-- KEYS: the sets of records in progress, unknown, failed, and of answers with an end, then a key for each settlement.
-- ARGV: the channel, the rows as pairs of state bytes, whether completed records remember their scope (1), then for each settlement token, target, how long to keep, when due, note, outcome.
-- Answers: now, then for each settlement DONE, a card, or nothing where no record is.
local channel, rows, scopes = ARGV[1], ARGV[2], ARGV[3] == '1'
local COMPLETED, UNKNOWN = 3, 5
local NEVER, NO_TIME, NO_TOKEN = 281474976710655, '\0\0\0\0\0\0', string.rep('\0', 16)

local function allowed(state, target)
  for i = 1, #rows, 2 do
    if byte(rows, i) == state and byte(rows, i + 1) == target then
      return true
    end
  end
  return false
end

-- A completed record is kept for long and in great numbers: only what repeats need, in as few bytes as can be.
local function completed(old, due_at, note, outcome)
  local version, attempts = unpack('>I4', old, 3) + 1, sub(old, 21, 22)
  local size, long = unpack('>I2I2', old, 55)
  local flags = byte(old, 20) + 4 * byte(old, 19)
  local options, scope = '', ''
  if due_at > 0 then
    flags, options = flags + 8, pack('>I6', due_at)
  end
  if attempts ~= '\0\1' then
    flags, options = flags + 16, options .. attempts
  end
  if note ~= '' then
    flags, options = flags + 32, options .. pack('>I2', #note)
  end
  if scopes and long > 0 then
    scope = sub(old, 69 + size, 68 + size + long)
    flags, options = flags + 64, options .. pack('>I2I2I2', long, 0, 0)
  end
  local counts
  if version > 255 or size > 255 then
    flags, counts = flags + 128, pack('>I4I2', version, size)
  else
    counts = string.char(version, size)
  end
  return string.char(SMALL, flags) .. sub(old, 23, 26) .. sub(old, 39, 46) .. counts .. options
    .. sub(old, 69, 68 + size) .. note .. scope .. outcome
end

-- Without an outcome of its own an end that is none keeps what stands there: the journal.
local function ended(old, target, due_at, expires_at, note, outcome)
  local fingerprint, scope, endpoint, key, noted = unpack('>I2I2I2I2I2', old, 55)
  if outcome == '' then
    outcome = sub(old, 69 + fingerprint + scope + endpoint + key + noted)
  end
  return string.char(OPEN, target) .. pack('>I4', unpack('>I4', old, 3) + 1) .. NO_TIME .. sub(old, 13, 26)
    .. pack('>I6I6', due_at, expires_at) .. sub(old, 39, 62) .. pack('>I2I4', #note, #outcome)
    .. sub(old, 69, 68 + fingerprint + scope + endpoint + key) .. note .. outcome
end

local function write(key, old, settlement)
  local token, target, keep_for, due_for, size, at = unpack('>c16BI6I6I2', settlement)
  if byte(old, 1) == SMALL then
    local repeated = target == COMPLETED and sub(old, 7, 14) == sub(token, 1, 8)
    return repeated and DONE or card(key, old)
  end
  local state = byte(old, 2)
  if not is_open(old) or sub(old, 39, 54) ~= token then
    return card(key, old)
  elseif state == target then
    return DONE
  elseif token == NO_TOKEN or not allowed(state, target) then
    return card(key, old)
  end

  local note, outcome = sub(settlement, at, at + size - 1), sub(settlement, at + size)
  local due_at = due_for ~= NEVER and now + due_for or 0
  local expires_at = keep_for ~= NEVER and now + keep_for or 0
  local written
  if target == COMPLETED then
    local new = completed(old, due_at, note, outcome)
    written = list_and_set(due_at > 0 and KEYS[4], due_at, key, new, expires_at)
  elseif target == UNKNOWN then
    local new = ended(old, target, due_at, expires_at, note, outcome)
    written = list_and_set(KEYS[2], due_at > 0 and due_at or '+inf', key, new, 0)
  else
    local new = ended(old, target, due_at, expires_at, note, outcome)
    written = list_and_set(KEYS[3], expires_at > 0 and expires_at or '+inf', key, new, expires_at)
  end
  if written ~= DONE then
    return written
  end
  call('ZREM', state == UNKNOWN and KEYS[2] or KEYS[1], key)
  if byte(old, 19) == 1 then
    pcall('PUBLISH', channel, key)
  end
  return DONE
end

local answers = {now}
for i = 5, #KEYS do
  local found = pcall('GET', KEYS[i])
  if found and not found.err then
    found = write(KEYS[i], found, ARGV[i - 1])
  end
  answers[i - 3] = found
end
return answers
