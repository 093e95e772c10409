-- The inbox, version 1. Give it to your own migrations as it is, or let `oncekey inbox migrate` run it.


-- name: handled
-- One small row for each message that was handled, for as long as it is remembered.
CREATE TABLE IF NOT EXISTS {table} (
    id BLOB NOT NULL PRIMARY KEY,
    expires_at INTEGER
) STRICT


-- name: handled_expiry
-- Finds what may be forgotten.
CREATE INDEX IF NOT EXISTS {index_expiry} ON {table} (expires_at) WHERE expires_at IS NOT NULL


-- name: place
-- Ordered mode: the last message handled of each partition. One row, however many messages.
CREATE TABLE IF NOT EXISTS {table_place} (
    consumer TEXT NOT NULL,
    source TEXT NOT NULL,
    partition INTEGER NOT NULL,
    position INTEGER NOT NULL,
    moved_at INTEGER NOT NULL,
    PRIMARY KEY (consumer, source, partition)
) STRICT


-- name: trouble
-- Messages whose handler failed, and those that were parked (parked_at) or are to be run again (requeued_at).
CREATE TABLE IF NOT EXISTS {table_trouble} (
    id BLOB NOT NULL PRIMARY KEY,
    consumer TEXT NOT NULL,
    source TEXT NOT NULL,
    message_id TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    parked_at INTEGER,
    requeued_at INTEGER,
    reason TEXT NOT NULL,
    form TEXT NOT NULL DEFAULT '',
    headers BLOB NOT NULL DEFAULT x'',
    body BLOB NOT NULL DEFAULT x''
) STRICT


-- name: trouble_parked
-- Lists what is parked, oldest first.
CREATE INDEX IF NOT EXISTS {index_parked} ON {table_trouble} (parked_at, id) WHERE parked_at IS NOT NULL
