-- write: a record is listed before it is written, so that no failure in between can leave one that nobody finds.
local function list_and_set(set, score, key, record, expires_at)
  local written = set and pcall('ZADD', set, score, key)
  if type(written) == 'table' then
    return written
  elseif expires_at > 0 then
    -- The server deletes a key one millisecond after the instant it is given; for us the record is over at it.
    written = pcall('SET', key, record, 'PXAT', expires_at - 1)
  else
    written = pcall('SET', key, record)
  end
  return written.err and written or DONE
end
