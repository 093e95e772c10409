-- card: what stands under a key, for the reader: when it is over and the server deletes it (0: never), then the record.
local OPEN, SMALL, SMALL_EXPIRED = 1, 2, 3

-- Whether a record has the layout with fixed offsets, head and all; a damaged one is left to the reader to refuse.
local function is_open(record)
  return byte(record, 1) == OPEN and #record >= 68
end

local function over_at(key)
  if redis.REDIS_VERSION_NUM then
    local at = call('PEXPIRETIME', key)
    return at >= 0 and at + 1 or 0
  end
  -- Redis 6.2 can only say how long that is from now: ask until no tick falls between the two questions.
  local before, left, after
  repeat
    before, left, after = call('TIME'), call('PTTL', key), call('TIME')
  until math.floor(before[2] / 1000) == math.floor(after[2] / 1000)
  return left >= 0 and before[1] * 1000 + math.floor(before[2] / 1000) + left + 1 or 0
end

local function card(key, record)
  if is_open(record) then
    return '\0\0\0\0\0\0' .. record
  end
  return pack('>I6', over_at(key)) .. record
end
