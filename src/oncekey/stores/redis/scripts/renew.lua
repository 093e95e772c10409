-- renew: prolong each living lease that still has its token and is below its cap; perhaps set the latch and keep a journal as well.
-- KEYS: the set of records in progress, then a key for each renewal.
-- ARGV: for each renewal token, lease, cap, wishes (1: begin, 2: there is a journal), journal.
-- Answers: now, then for each renewal DONE, a card, or nothing where no record is.
local CLAIMED, EXECUTING, NO_TOKEN = 1, 2, string.rep('\0', 16)

local function with_outcome(record, outcome)
  local fingerprint, scope, endpoint, key, note = unpack('>I2I2I2I2I2', record, 55)
  return sub(record, 1, 64) .. pack('>I4', #outcome) .. sub(record, 69, 68 + fingerprint + scope + endpoint + key + note) .. outcome
end

local function write(key, old, renewal)
  local token, lease_for, cap_for, wishes, at = unpack('>c16I6I6B', renewal)
  local state = byte(old, 2)
  if not is_open(old) or (state ~= CLAIMED and state ~= EXECUTING) then
    return card(key, old)
  end
  local version, lease_until, claimed_at = unpack('>I4I6I6', old, 3)
  if sub(old, 39, 54) ~= token or token == NO_TOKEN or lease_until <= now or now - claimed_at >= cap_for then
    return card(key, old)
  end
  if wishes % 2 == 1 then
    state = EXECUTING
  end
  local head, written = string.char(state) .. pack('>I4I6', version + 1, now + lease_for), nil
  if wishes >= 2 then
    written = pcall('SET', key, with_outcome(sub(old, 1, 1) .. head .. sub(old, 13), sub(renewal, at)))
  else
    written = pcall('SETRANGE', key, 1, head)
  end
  if type(written) == 'table' and written.err then
    return written
  end
  call('ZADD', KEYS[1], now + lease_for, key)
  return DONE
end

local answers = {now}
for i = 2, #KEYS do
  local found = pcall('GET', KEYS[i])
  if found and not found.err then
    found = write(KEYS[i], found, ARGV[i - 1])
  end
  answers[i] = found
end
return answers
