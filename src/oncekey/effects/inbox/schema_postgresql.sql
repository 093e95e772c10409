-- The inbox, version 1. Give it to your own migrations as it is, or let `oncekey inbox migrate` run it.


-- name: in_turn
-- Two that make the tables at the same moment do it one after the other.
SELECT pg_advisory_xact_lock(7305808869231650)


-- name: handled
-- One small row for each message that was handled, for as long as it is remembered.
CREATE TABLE IF NOT EXISTS {table} (
    id bytea NOT NULL PRIMARY KEY,
    expires_at int8
)


-- name: handled_expiry
-- Finds what may be forgotten.
CREATE INDEX IF NOT EXISTS {index_expiry} ON {table} (expires_at) WHERE expires_at IS NOT NULL


-- name: place
-- Ordered mode: the last message handled of each partition. One row, however many messages.
CREATE TABLE IF NOT EXISTS {table_place} (
    consumer text NOT NULL,
    source text NOT NULL,
    partition int4 NOT NULL,
    position int8 NOT NULL,
    moved_at int8 NOT NULL,
    PRIMARY KEY (consumer, source, partition)
)


-- name: trouble
-- Messages whose handler failed, and those that were parked (parked_at) or are to be run again (requeued_at).
CREATE TABLE IF NOT EXISTS {table_trouble} (
    id bytea NOT NULL PRIMARY KEY,
    consumer text NOT NULL,
    source text NOT NULL,
    message_id text NOT NULL,
    attempts int4 NOT NULL,
    first_at int8 NOT NULL,
    last_at int8 NOT NULL,
    parked_at int8,
    requeued_at int8,
    reason text NOT NULL,
    form text NOT NULL DEFAULT '',
    headers bytea NOT NULL DEFAULT '',
    body bytea NOT NULL DEFAULT ''
)


-- name: trouble_parked
-- Lists what is parked, oldest first.
CREATE INDEX IF NOT EXISTS {index_parked} ON {table_trouble} (parked_at, id) WHERE parked_at IS NOT NULL
