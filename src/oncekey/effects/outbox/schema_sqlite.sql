-- The outbox, version 1. Give it to your own migrations as it is, or let `oncekey outbox migrate` run it.
-- id, aggregatetype, aggregateid, type and payload have the names that Debezium's outbox event router reads.


-- name: messages
-- One row for each message: to be sent, sent (sent_at) or given up (parked_at). A relay that has taken it puts due_at
-- to the end of its lease.
CREATE TABLE IF NOT EXISTS {table} (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    aggregatetype TEXT NOT NULL,
    aggregateid TEXT,
    type TEXT NOT NULL DEFAULT '',
    payload BLOB NOT NULL,
    headers TEXT NOT NULL DEFAULT '',
    staged_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    lease TEXT,
    sent_at INTEGER,
    parked_at INTEGER,
    reason TEXT NOT NULL DEFAULT ''
) STRICT


-- name: pending
-- Finds what is to be sent, in the order in which it was staged.
CREATE INDEX IF NOT EXISTS {index_pending} ON {table} (position) WHERE sent_at IS NULL AND parked_at IS NULL


-- name: pending_key
-- Finds what must be sent before another message of its key.
CREATE INDEX IF NOT EXISTS {index_key} ON {table} (aggregatetype, aggregateid, position)
WHERE sent_at IS NULL AND parked_at IS NULL AND aggregateid IS NOT NULL


-- name: sent
-- Finds what may be forgotten.
CREATE INDEX IF NOT EXISTS {index_sent} ON {table} (sent_at) WHERE sent_at IS NOT NULL


-- name: parked
-- Lists the dead letters, oldest first.
CREATE INDEX IF NOT EXISTS {index_parked} ON {table} (position) WHERE parked_at IS NOT NULL
