-- small: how the layouts of completed and expired records are read in place.
local function is_small(record)
  local layout = byte(record, 1)
  return (layout == SMALL or layout == SMALL_EXPIRED) and #record >= 18
end

-- Whether a small record has this flag: a power of two, as in layout.py.
local function has_flag(record, flag)
  return math.floor(byte(record, 2) / flag) % 2 == 1
end
