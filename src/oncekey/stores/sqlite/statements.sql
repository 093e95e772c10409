-- Every statement has a name and a sentence. `(?, ?), ...` stands for one such group per item of a batch.
-- {columns} is the fragment of that name. `format = 1` keeps this code away from records that it cannot read.

-- name: columns
-- The columns of a record, in the order in which plan.read takes them.
id, format, state, waited, guarantee, attempts, version, token, fingerprint, claimed_at, lease_until, due_at,
expires_at, scope, endpoint, key, note, outcome

-- name: find
-- The records of these ids.
SELECT {columns} FROM oncekey_record WHERE id IN (?, ...)

-- name: claim
-- Take the keys that have no record. Who loses writes nothing.
INSERT INTO oncekey_record (id, format, state, guarantee, token, fingerprint, claimed_at, lease_until, scope, endpoint, key)
VALUES (?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?), ...
ON CONFLICT (id) DO NOTHING

-- name: waited
-- Which of these unsettled records somebody waits for.
SELECT id FROM oncekey_record INDEXED BY oncekey_waited WHERE waited = 1 AND state IN (1, 2, 5) AND id IN (?, ...)

-- name: settle
-- Record how the work ended; what is not completed keeps its journal. id, token, target, the states it may come from as bits, due_at, expires_at, note, outcome.
UPDATE oncekey_record
SET state = s.column3, version = version + 1, lease_until = NULL, due_at = s.column5, expires_at = s.column6,
    note = s.column7, outcome = CASE WHEN s.column8 = x'' AND s.column3 <> 3 THEN outcome ELSE s.column8 END
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?), ...) AS s
WHERE oncekey_record.id = s.column1 AND token = s.column2 AND token <> x'' AND (s.column4 >> state) & 1 AND format = 1

-- name: complete
-- In a caller's own transaction: keep the outcome of what was claimed in it. due_at, expires_at, outcome, id, token.
UPDATE oncekey_record
SET state = 3, guarantee = 2, version = version + 1, lease_until = NULL, due_at = ?, expires_at = ?, outcome = ?
WHERE id = ? AND token = ? AND state = 2 AND format = 1

-- name: doubt
-- In a caller's own transaction: keep that nobody knows what became of what was claimed in it. due_at, note, id, token.
UPDATE oncekey_record SET state = 5, version = version + 1, lease_until = NULL, due_at = ?, note = ?
WHERE id = ? AND token = ? AND state = 2 AND format = 1

-- name: renew
-- Prolong living leases; with begin, set the latch; with a journal, keep it. id, token, lease_until, cap_for, begin, now,
-- journal (NULL: none).
UPDATE oncekey_record
SET state = CASE WHEN r.column5 THEN 2 ELSE state END, version = version + 1, lease_until = r.column3,
    outcome = coalesce(r.column7, outcome)
FROM (VALUES (?, ?, ?, ?, ?, ?, ?), ...) AS r
WHERE oncekey_record.id = r.column1 AND token = r.column2 AND token <> x'' AND state IN (1, 2)
    AND lease_until > r.column6 AND r.column6 - claimed_at < r.column4 AND format = 1
RETURNING id

-- name: swap
-- Replace a record that is still the one that was seen: the version alone starts again with each life of a key.
UPDATE oncekey_record
SET state = ?, waited = ?, guarantee = ?, attempts = ?, version = ?, token = ?, fingerprint = ?, claimed_at = ?,
    lease_until = ?, due_at = ?, expires_at = ?, scope = ?, endpoint = ?, key = ?, note = ?, outcome = ?
WHERE id = ? AND version = ? AND token = ? AND expires_at IS ? AND format = 1

-- name: put
-- Write records whole where none stands, as they come from another store.
INSERT INTO oncekey_record (state, waited, guarantee, attempts, version, token, fingerprint, claimed_at, lease_until, due_at,
    expires_at, scope, endpoint, key, note, outcome, id, format)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1), ...
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: watch
-- Mark that somebody waits for a record in progress.
UPDATE oncekey_record SET waited = 1 WHERE id = ? AND state IN (1, 2) AND format = 1

-- name: still_open
-- Which of these records are in progress.
SELECT id FROM oncekey_record WHERE id IN (?, ...) AND state IN (1, 2)

-- name: scan_open
-- A page of records in progress, failed or unknown, oldest claim first: states, due (NULL: any), after, limit.
SELECT seq, {columns} FROM oncekey_record WHERE seq IN (
    SELECT seq FROM oncekey_record INDEXED BY oncekey_open
    WHERE state IN (1, 2, 4, 5) AND format = 1 AND (? >> state) & 1 AND (? IS NULL OR next_at <= ?) AND seq > ?
    ORDER BY seq LIMIT ?
) ORDER BY seq

-- name: scan_due
-- A page of unknown records that are due, the longest due first: due, and the time and number after which to go on.
SELECT seq, {columns} FROM oncekey_record INDEXED BY oncekey_unknown
WHERE state = 5 AND format = 1 AND due_at <= ? AND (due_at, seq) > (?, ?)
ORDER BY due_at, seq LIMIT ?

-- name: scan_undated
-- A page of unknown records without a time.
SELECT seq, {columns} FROM oncekey_record INDEXED BY oncekey_unknown
WHERE state = 5 AND format = 1 AND due_at IS NULL AND seq > ?
ORDER BY seq LIMIT ?

-- name: scan_any
-- The same for any states, by walking the table from where the last page ended.
SELECT seq, {columns} FROM oncekey_record
WHERE format = 1 AND (? >> state) & 1 AND (? IS NULL OR next_at <= ?) AND seq > ?
ORDER BY seq LIMIT ?

-- name: purge
-- Delete some final records past their expiry; the condition stands on the deletion itself.
DELETE FROM oncekey_record WHERE seq IN (
    SELECT seq FROM oncekey_record INDEXED BY oncekey_final
    WHERE state IN (3, 4, 6) AND format = 1 AND expires_at <= ? ORDER BY expires_at LIMIT ?
) AND state IN (3, 4, 6) AND format = 1 AND expires_at <= ?

-- name: expire_softly
-- Drop some answers whose time is over; their keys stay.
UPDATE oncekey_record SET state = 6, version = version + 1, due_at = NULL, outcome = x'' WHERE seq IN (
    SELECT seq FROM oncekey_record INDEXED BY oncekey_answer
    WHERE state = 3 AND due_at IS NOT NULL AND format = 1 AND due_at <= ? ORDER BY due_at LIMIT ?
) AND state = 3 AND format = 1 AND due_at <= ?

-- name: count_open
-- Records in progress, failed or unknown, by state.
SELECT state, count(*) FROM oncekey_record INDEXED BY oncekey_open
WHERE state IN (1, 2, 4, 5) AND format = 1 GROUP BY state

-- name: count_final
-- Completed and expired records, by state: read from an index, not from the table.
SELECT state, count(*) FROM oncekey_record INDEXED BY oncekey_final
WHERE state IN (3, 4, 6) AND format = 1 AND state <> 4 GROUP BY state

-- name: count_foreign
-- Records that only newer code can read.
SELECT count(*) FROM oncekey_record INDEXED BY oncekey_foreign WHERE format <> 1

-- name: has_schema
-- Whether the table of schema versions is there.
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'oncekey_schema'

-- name: schema
-- The newest schema version that was applied.
SELECT coalesce(max(version), 0) FROM oncekey_schema

-- name: applied
-- Note that a schema version was applied.
INSERT INTO oncekey_schema (version, applied_at) VALUES (?, ?)

-- name: file_size
-- Bytes of the database file, without its log.
SELECT page_count * page_size FROM pragma_page_count, pragma_page_size
