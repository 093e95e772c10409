-- What is said on a caller's own connection, whose driver may be any: values are cast, never guessed. The words in
-- {brackets} are those of statements.sql.


-- name: claim
-- Take the key, or read its record. The lock is for this transaction alone and is not waited for: who does not get it
-- is told that another transaction is at it. An answer must not be lost after it was given, so the commit is durable
-- whatever the connection's default. The transaction's number is what `complete` knows it by.
WITH free AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(CAST($2 AS int8)) AS got,
           set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true) AS durable
), put AS (
    INSERT INTO {table} (format, id, token, fingerprint, state, guarantee, claimed_at, lease_until, scope, endpoint, key)
    SELECT {format}, CAST($1 AS bytea), CAST($3 AS bytea), CAST($4 AS bytea), {executing}, CAST($5 AS int2),
           {now}, {now} + CAST($6 AS int8), CAST($7 AS bytea), CAST($8 AS bytea), CAST($9 AS bytea)
    FROM free WHERE got
    ON CONFLICT (id) DO NOTHING
    RETURNING id
)
SELECT free.got, CASE WHEN put.id IS NOT NULL THEN CAST(pg_current_xact_id() AS text) END, free.durable, {now}, {columns}
FROM free LEFT JOIN put ON true LEFT JOIN {table} AS r ON r.id = CAST($1 AS bytea)


-- name: look
-- Read the record, in a snapshot of its own where the isolation level gives one.
SELECT {now}, {columns} FROM (SELECT) AS once LEFT JOIN {table} AS r ON r.id = CAST($1 AS bytea)


-- name: swap
-- Replace the record that was seen.
UPDATE {table} AS r
SET format = {format}, state = CAST($5 AS int2), version = CAST($6 AS int8), token = CAST($7 AS bytea),
    fingerprint = CAST($8 AS bytea), guarantee = CAST($9 AS int2), attempts = CAST($10 AS int4),
    claimed_at = CAST($11 AS int8), lease_until = CAST($12 AS int8), due_at = CAST($13 AS int8),
    expires_at = CAST($14 AS int8), waited = CAST($15 AS bool), scope = CAST($16 AS bytea), endpoint = CAST($17 AS bytea),
    key = CAST($18 AS bytea), note = CAST($19 AS bytea), outcome = CAST($20 AS bytea)
WHERE r.id = CAST($1 AS bytea) AND r.version = CAST($2 AS int8) AND r.token IS NOT DISTINCT FROM CAST($3 AS bytea)
      AND r.expires_at IS NOT DISTINCT FROM CAST($4 AS int8)
RETURNING CAST(pg_current_xact_id() AS text)


-- name: complete
-- Keep the outcome, if this is still the transaction in which the key was claimed.
UPDATE {table} AS r
SET state = {completed}, guarantee = CAST($7 AS int2), version = r.version + 1, lease_until = NULL,
    due_at = {now} + CAST($5 AS int8), expires_at = {now} + CAST($4 AS int8), outcome = CAST($3 AS bytea)
WHERE r.id = CAST($1 AS bytea) AND r.token = CAST($2 AS bytea) AND r.state = {executing}
      AND CAST(pg_current_xact_id() AS text) = CAST($6 AS text)
RETURNING r.id


-- name: close
-- `complete`, with an error where it would find nothing: the commit that is sent along is then not carried out. SQL has
-- no other way to raise, and the server's log shows the words.
WITH kept AS (
    UPDATE {table} AS r
    SET state = {completed}, guarantee = CAST($7 AS int2), version = r.version + 1, lease_until = NULL,
        due_at = {now} + CAST($5 AS int8), expires_at = {now} + CAST($4 AS int8), outcome = CAST($3 AS bytea)
    WHERE r.id = CAST($1 AS bytea) AND r.token = CAST($2 AS bytea) AND r.state = {executing}
          AND CAST(pg_current_xact_id() AS text) = CAST($6 AS text)
    RETURNING 1
)
SELECT CAST(CASE count(*) WHEN 1 THEN '1' ELSE 'oncekey: this transaction is not the one that claimed the key' END AS int4)
FROM kept


-- name: doubt
-- Keep that nobody knows what became of it, if this is still the transaction in which the key was claimed.
UPDATE {table} AS r
SET state = {unknown}, version = r.version + 1, lease_until = NULL, due_at = {now} + CAST($3 AS int8), note = CAST($4 AS bytea)
WHERE r.id = CAST($1 AS bytea) AND r.token = CAST($2 AS bytea) AND r.state = {executing}
      AND CAST(pg_current_xact_id() AS text) = CAST($5 AS text)
RETURNING r.id
