-- What the inbox asks of a database. `:word` is a value, `{word}` is filled in by statements.py; what the two databases
-- say in different words stands there too. `{free}` takes the lock of a name until the transaction ends, and never waits:
-- where another consumer has it, `got` is false.


-- name: claim
-- Put the message's name into the table. True: it was new. False: another consumer is at it. Nothing: it was there.
{claim}


-- name: known
-- Whether the message was handled.
SELECT 1 FROM {table} WHERE id = :id


-- name: look
-- Ordered mode: whether the partition is free, and the place that it was handled up to.
{look}


-- name: advance
-- Ordered mode: move the place on, and never back.
INSERT INTO {table_place} AS p (consumer, source, partition, position, moved_at)
VALUES (:consumer, :source, :partition, :position, {now})
ON CONFLICT (consumer, source, partition) DO UPDATE SET position = excluded.position, moved_at = excluded.moved_at
WHERE p.position < excluded.position
RETURNING position


-- name: place
-- Ordered mode: the place, for whoever starts to consume.
SELECT position FROM {table_place} WHERE consumer = :consumer AND source = :source AND partition = :partition


-- name: forget_place
-- Ordered mode: begin anew with a partition whose topic was made anew.
DELETE FROM {table_place} WHERE consumer = :consumer AND source = :source RETURNING partition


-- name: begin
-- Count an attempt before it begins: the one before may have ended with its process. Nothing where the lock is not free.
{begin}


-- name: take_back
-- The attempt that was counted before it began is none: its handler asked for time, or the database failed.
UPDATE {table_trouble} SET attempts = attempts - 1 WHERE id = :id AND parked_at IS NULL AND attempts > 0


-- name: failed
-- Note that an attempt failed, and count it if `begin` has not. The caller looks whether parked_at is NULL: asked here,
-- SQLite 3.40 says what the condition of the partial index says.
INSERT INTO {table_trouble} AS t (id, consumer, source, message_id, attempts, first_at, last_at, reason)
VALUES (:id, :consumer, :source, :message_id, :count, {now}, {now}, :reason)
ON CONFLICT (id) DO UPDATE SET attempts = t.attempts + excluded.attempts, last_at = excluded.last_at, reason = excluded.reason
RETURNING attempts, parked_at


-- name: park
-- Put the message aside, with all that is needed to run it again.
UPDATE {table_trouble} SET parked_at = {now}, requeued_at = NULL, form = :form, headers = :headers, body = :body
WHERE id = :id AND parked_at IS NULL
RETURNING attempts


-- name: recovered
-- The message that made trouble was handled.
DELETE FROM {table_trouble} WHERE id = :id


-- name: take
-- Take one message that an operator wants run again. It is run once: if it fails, or its process dies, it stays parked.
UPDATE {table_trouble} SET requeued_at = NULL, attempts = attempts + 1, last_at = {now}
WHERE id = (
    SELECT id FROM {table_trouble}
    WHERE parked_at IS NOT NULL AND requeued_at IS NOT NULL AND consumer = :consumer AND source = :source
    ORDER BY requeued_at, id LIMIT 1 {skip_locked}
)
RETURNING {columns}


-- name: parked
-- A page of what is parked, oldest first. `after` is the last one of the page before.
SELECT {columns} FROM {table_trouble}
WHERE parked_at IS NOT NULL AND (parked_at, id) > (:after_at, :after_id)
  AND (CAST(:consumer AS {text}) IS NULL OR consumer = :consumer) AND (CAST(:source AS {text}) IS NULL OR source = :source)
ORDER BY parked_at, id LIMIT :most


-- name: one
-- One message that is parked.
SELECT {columns} FROM {table_trouble} WHERE parked_at IS NOT NULL AND id = :id


-- name: requeue
-- Let one be run again by its consumer.
UPDATE {table_trouble} SET requeued_at = {now} WHERE id = :id AND parked_at IS NOT NULL RETURNING id


-- name: discard
-- Forget one that nobody wants any more.
DELETE FROM {table_trouble} WHERE id = :id AND parked_at IS NOT NULL RETURNING id


-- name: purge_handled
-- Forget a small batch of what is no longer remembered.
WITH old AS MATERIALIZED (SELECT id FROM {table} WHERE expires_at <= {now} ORDER BY expires_at LIMIT :most {skip_locked})
DELETE FROM {table} WHERE id IN (SELECT id FROM old) RETURNING 1


-- name: purge_trouble
-- Forget failures of messages that never came again. What is parked is never purged.
WITH old AS MATERIALIZED (
    SELECT id FROM {table_trouble} WHERE parked_at IS NULL AND last_at <= {now} - :keep_for LIMIT :most {skip_locked}
)
DELETE FROM {table_trouble} WHERE id IN (SELECT id FROM old) RETURNING 1


-- name: count
-- How much there is.
SELECT (SELECT count(*) FROM {table}), (SELECT count(*) FROM {table_place}),
       (SELECT count(*) FROM {table_trouble} WHERE parked_at IS NULL),
       (SELECT count(*) FROM {table_trouble} WHERE parked_at IS NOT NULL)
