-- The outbox, version 1. Give it to your own migrations as it is, or let `oncekey outbox migrate` run it.
-- id, aggregatetype, aggregateid, type and payload are the columns that Debezium's outbox event router reads.


-- name: in_turn
-- Two that make the tables at the same moment do it one after the other.
SELECT pg_advisory_xact_lock(7305808869231651)


-- name: messages
-- One row for each message: to be sent, sent (sent_at) or given up (parked_at). A relay that has taken it puts due_at
-- to the end of its lease.
CREATE TABLE IF NOT EXISTS {table} (
    id uuid NOT NULL PRIMARY KEY,
    position int8 GENERATED ALWAYS AS IDENTITY,
    aggregatetype varchar(255) NOT NULL,
    aggregateid varchar(255),
    type varchar(255) NOT NULL DEFAULT '',
    payload bytea NOT NULL,
    headers text NOT NULL DEFAULT '',
    staged_at int8 NOT NULL,
    due_at int8 NOT NULL,
    attempts int4 NOT NULL DEFAULT 0,
    lease text,
    sent_at int8,
    parked_at int8,
    reason text NOT NULL DEFAULT ''
)


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
