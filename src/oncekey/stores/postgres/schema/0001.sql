-- Version 1. Each statement has a name and a sentence; all of them commit together.


-- name: records
-- One row per operation. Text is kept as UTF-8 bytes: a database of another encoding, or a NUL in a path, refuses nothing.
-- A settled row moves within its page where there is room (fillfactor); bodies come compressed, so they are not
-- compressed again (see storage); an empty tail is not cut off, because that would lock claims out.
CREATE TABLE {table} (
    version int8 NOT NULL DEFAULT 1,
    claimed_at int8 NOT NULL,
    lease_until int8,
    due_at int8,
    expires_at int8,
    attempts int4 NOT NULL DEFAULT 1,
    state int2 NOT NULL CHECK (state BETWEEN 1 AND 6),
    guarantee int2 NOT NULL,
    format int2 NOT NULL,
    waited bool NOT NULL DEFAULT false,
    id bytea NOT NULL PRIMARY KEY,
    token bytea,
    fingerprint bytea NOT NULL,
    scope bytea NOT NULL,
    endpoint bytea NOT NULL,
    key bytea NOT NULL,
    note bytea NOT NULL DEFAULT '',
    outcome bytea NOT NULL DEFAULT ''
) WITH (
    fillfactor = 70,
    vacuum_truncate = false,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
)


-- name: storage
-- Large outcomes go out of line as they are.
ALTER TABLE {table} ALTER COLUMN outcome SET STORAGE EXTERNAL


-- name: open_index
-- Finds what is in progress, unknown or failed without reading finished records. A record leaves it once. No index
-- holds lease_until or version: a renewal stays within its page.
CREATE INDEX {index_open} ON {table} (id) WHERE state IN (1, 2, 4, 5)


-- name: expiry_index
-- Finds what may be deleted. An open record is not in it; expires_at is set once.
CREATE INDEX {index_expiry} ON {table} (expires_at) WHERE expires_at IS NOT NULL


-- name: answer_index
-- Finds answers that end before their keys; most policies have none.
CREATE INDEX {index_answer} ON {table} (due_at) WHERE state = 3 AND due_at IS NOT NULL
