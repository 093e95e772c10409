-- The simulated provider's own memory. Every statement has a name and a sentence.

-- name: runs
-- One row for every time that the provider acted. `told` is what it answered, or would have if it had not failed.
CREATE TABLE IF NOT EXISTS provider_run (
    run INTEGER PRIMARY KEY,
    ref TEXT NOT NULL,
    api TEXT NOT NULL,
    kind TEXT NOT NULL,
    caller BLOB NOT NULL,
    object TEXT NOT NULL,
    told TEXT NOT NULL,
    begun_at INTEGER NOT NULL,
    delay_for INTEGER NOT NULL,
    fails_with INTEGER,
    worker INTEGER NOT NULL
) STRICT

-- name: references
-- Which run was made under a reference that the caller gave; none: that reference was cancelled, and is shut.
CREATE TABLE IF NOT EXISTS provider_reference (
    reference TEXT NOT NULL PRIMARY KEY,
    run INTEGER
) STRICT

-- name: by_ref
-- Counting the runs of a ref reads that ref's rows only.
CREATE INDEX IF NOT EXISTS provider_run_ref ON provider_run (ref)

-- name: by_object
-- Objects are looked up by their id.
CREATE INDEX IF NOT EXISTS provider_run_object ON provider_run (object)

-- name: begin
-- The provider acts: the effect is there from now on, whatever becomes of the answer.
INSERT INTO provider_run (ref, api, kind, caller, object, told, begun_at, delay_for, fails_with, worker)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: cancelled
-- Whether a reference is shut.
SELECT count(*) FROM provider_reference WHERE reference = ? AND run IS NULL

-- name: refer
-- Note the run that was made just now under its reference.
INSERT INTO provider_reference (reference, run) VALUES (?, last_insert_rowid())
ON CONFLICT (reference) DO UPDATE SET run = excluded.run

-- name: cancel
-- Shut a reference under which nothing was run.
INSERT INTO provider_reference (reference, run) VALUES (?, NULL) ON CONFLICT (reference) DO NOTHING

-- name: referred
-- The run that was made under a reference.
SELECT run, object, told, fails_with FROM provider_run
WHERE run = (SELECT run FROM provider_reference WHERE reference = ?)

-- name: sent
-- The latest run for a ref that was made under a reference, and did not fail.
SELECT reference, run, object, told FROM provider_run JOIN provider_reference USING (run)
WHERE ref = ? AND fails_with IS NULL ORDER BY run DESC LIMIT 1

-- name: count
-- How often it acted for a ref.
SELECT count(*) FROM provider_run WHERE ref = ?

-- name: object
-- A caller's object of a kind, if the run that made it did not fail.
SELECT told FROM provider_run
WHERE object = ? AND kind = ? AND caller = ? AND fails_with IS NULL ORDER BY run LIMIT 1

-- name: recent
-- The latest runs, the newest first.
SELECT run, ref, api, kind, object, begun_at, delay_for, fails_with, worker FROM provider_run
ORDER BY run DESC LIMIT ?

-- name: total
-- The number of the latest run; none is ever deleted, so it is how often the provider has acted in all.
SELECT coalesce(max(run), 0) FROM provider_run
