-- What the outbox asks of a database. `:word` is a value, `{word}` is filled in by statements.py; what the two databases
-- say in different words stands there too.


-- name: stage
-- Put a message into the outbox, in the caller's transaction, and wake the relays when that commits.
{stage}


-- name: take_turn
-- Let one relay at a time decide what it takes, so that no message of a key is taken before an earlier one.
{take_turn}


-- name: claim
-- Take the oldest messages that are due, until the lease is over. A message waits for earlier ones of its key that wait.
{claim}


-- name: sent
-- The broker has confirmed these, whoever has them now. By their ids: what committed late is found by the next claim.
UPDATE {table} SET sent_at = {now}, lease = NULL, reason = '', attempts = attempts + 1
WHERE id IN ({ids}) AND sent_at IS NULL
RETURNING 1


-- name: failed
-- The broker has refused this one: it is tried again later, or given up. Nothing, where the lease is over.
UPDATE {table} SET attempts = attempts + 1, lease = NULL, reason = :reason, due_at = {now} + :wait_for,
    parked_at = CASE WHEN CAST(:park AS {small}) = 1 THEN {now} END
WHERE id = {id} AND lease = :lease AND due_at > {now} AND sent_at IS NULL
RETURNING 1


-- name: released
-- These were not tried: let them be taken at once, by whoever comes.
UPDATE {table} SET lease = NULL, due_at = {now}
WHERE id IN ({ids}) AND lease = :lease AND due_at > {now} AND sent_at IS NULL
RETURNING 1


-- name: look
-- In how many milliseconds something is due: 0 or less for now, NULL where nothing is to be sent.
SELECT min(due_at) - {now} FROM {table} WHERE sent_at IS NULL AND parked_at IS NULL


-- name: parked
-- A page of the dead letters, oldest first. `after` is the position of the last one of the page before.
SELECT {columns}, parked_at, reason FROM {table} WHERE parked_at IS NOT NULL AND position > :after
ORDER BY position LIMIT :most


-- name: requeue
-- Let dead letters be sent again, all attempts given back: one by its id, or all.
UPDATE {table} SET parked_at = NULL, attempts = 0, due_at = {now}
WHERE parked_at IS NOT NULL AND (CAST(:every AS {small}) = 1 OR id = {id})
RETURNING 1


-- name: wake
-- Wake the relays.
{wake}


-- name: discard
-- Forget a dead letter that nobody wants any more.
DELETE FROM {table} WHERE parked_at IS NOT NULL AND id = {id} RETURNING 1


-- name: purge
-- Forget a small batch of what was sent long ago.
WITH old AS MATERIALIZED (
    SELECT position FROM {table} WHERE sent_at <= {now} - :keep_for ORDER BY sent_at LIMIT :most {skip_locked}
)
DELETE FROM {table} WHERE position IN (SELECT position FROM old) RETURNING 1


-- name: count
-- How much there is: to be sent, of these failed before, sent and kept, given up; and for how long the oldest waits.
SELECT count(*) FILTER (WHERE sent_at IS NULL AND parked_at IS NULL),
       count(*) FILTER (WHERE sent_at IS NULL AND parked_at IS NULL AND attempts > 0),
       count(*) FILTER (WHERE sent_at IS NOT NULL),
       count(*) FILTER (WHERE parked_at IS NOT NULL),
       {now} - min(CASE WHEN sent_at IS NULL AND parked_at IS NULL THEN staged_at END)
FROM {table}


-- name: there
-- Whether the table is there, with all its columns.
SELECT {columns}, lease, sent_at, parked_at, due_at, reason FROM {table} LIMIT 0
