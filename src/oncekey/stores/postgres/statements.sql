-- What the Postgres room says to its server. Each statement has a name and a sentence; a word in brackets after the
-- name is for the lane: (prepared) is parsed once per connection, (patient) may take its time, (anywhere) is also
-- allowed on a server that refuses writes.
--
-- {table}, {schema} and {now} are filled in when the file is read, {settling}, {open}, {final} from the table of
-- core.transitions and core.record. {columns} is a record as plan.py reads it, {now} the server's clock in milliseconds.
-- {formats} keeps this code away from records that it cannot read: they are neither listed nor deleted; a walk over all counts them.


-- name: claim (prepared)
-- Insert where no record is. A conflict writes nothing at all; who was inserted is returned.
INSERT INTO {table} (format, id, token, fingerprint, state, guarantee, claimed_at, lease_until, scope, endpoint, key)
SELECT {format}, a.id, a.token, a.fingerprint, a.state, a.guarantee, {now}, {now} + a.lease_for, a.scope, a.endpoint, a.key
FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int2[], $5::int2[], $6::int8[], $7::bytea[], $8::bytea[], $9::bytea[])
     AS a(id, token, fingerprint, state, guarantee, lease_for, scope, endpoint, key)
ON CONFLICT (id) DO NOTHING
RETURNING id, lease_until


-- name: look (prepared)
-- Read records in a snapshot of its own, without those that carry one of the given tokens; at least one row comes back,
-- for the time.
SELECT {now}, {columns}
FROM (SELECT) AS once LEFT JOIN {table} AS r ON r.id = ANY($1::bytea[]) AND (r.token <> ALL($2::bytea[])) IS NOT FALSE


-- name: settle (prepared)
-- Record outcomes by token and state, whatever the lease; what is not completed keeps its journal. Tell the listeners of
-- records on which somebody waits.
WITH settled AS (
    UPDATE {table} AS r
    SET state = a.target, version = r.version + 1, lease_until = NULL, due_at = {now} + a.due_for,
        expires_at = {now} + a.keep_for, note = a.note,
        outcome = CASE WHEN a.outcome = '' AND a.target <> {completed} THEN r.outcome ELSE a.outcome END
    FROM unnest($1::bytea[], $2::bytea[], $3::int2[], $4::int8[], $5::int8[], $6::bytea[], $7::bytea[])
         AS a(id, token, target, keep_for, due_for, note, outcome)
    WHERE r.id = a.id AND r.token = a.token AND (r.state, a.target) IN ({settling})
    RETURNING r.id, r.waited
)
SELECT id, CASE WHEN waited THEN pg_notify($8::text, encode(id, 'hex')) END FROM settled


-- name: renew (prepared)
-- Prolong living leases by token; begin sets the latch and a journal is kept, in the same write.
UPDATE {table} AS r
SET state = CASE WHEN a.begin THEN {executing} ELSE r.state END, version = r.version + 1, lease_until = {now} + a.lease_for,
    outcome = coalesce(a.outcome, r.outcome)
FROM unnest($1::bytea[], $2::bytea[], $3::int8[], $4::int8[], $5::bool[], $6::bytea[])
     AS a(id, token, lease_for, cap_for, begin, outcome)
WHERE r.id = a.id AND r.token = a.token AND r.state IN ({in_progress})
      AND r.lease_until > {now} AND {now} - r.claimed_at < a.cap_for
RETURNING r.id


-- name: confirm
-- Write rows again as they are. A commit whose reply was lost may be on this server only; what is written after it and
-- acknowledged to us carries it along.
UPDATE {table} AS r SET waited = r.waited
FROM unnest($1::bytea[], $2::bytea[]) AS a(id, token)
WHERE r.id = a.id AND r.token = a.token
RETURNING r.id


-- name: swap (prepared)
-- Replace a record if it is still the one that was seen; tell those who waited for the old one. The version alone would
-- not do: it starts again with each life of a key.
WITH old AS (
    SELECT id, waited FROM {table}
    WHERE id = $1::bytea AND version = $2::int8
          AND token IS NOT DISTINCT FROM $3::bytea AND expires_at IS NOT DISTINCT FROM $4::int8
    FOR UPDATE
), new AS (
    UPDATE {table} AS r
    SET format = {format}, state = $5::int2, version = $6::int8, token = $7::bytea, fingerprint = $8::bytea, guarantee = $9::int2,
        attempts = $10::int4, claimed_at = $11::int8, lease_until = $12::int8, due_at = $13::int8, expires_at = $14::int8,
        waited = $15::bool, scope = $16::bytea, endpoint = $17::bytea, key = $18::bytea, note = $19::bytea,
        outcome = $20::bytea
    FROM old
    WHERE r.id = old.id AND r.version = $2::int8
          AND r.token IS NOT DISTINCT FROM $3::bytea AND r.expires_at IS NOT DISTINCT FROM $4::int8
    RETURNING r.id, old.waited
)
SELECT id, CASE WHEN waited THEN pg_notify($21::text, encode(id, 'hex')) END FROM new


-- name: put
-- Write records whole where none stands, as they come from another store; who was written is returned.
INSERT INTO {table} (format, id, state, version, token, fingerprint, guarantee, attempts, claimed_at, lease_until, due_at,
    expires_at, waited, scope, endpoint, key, note, outcome)
SELECT {format}, a.* FROM unnest($1::bytea[], $2::int2[], $3::int8[], $4::bytea[], $5::bytea[], $6::int2[], $7::int8[], $8::int8[],
    $9::int8[], $10::int8[], $11::int8[], $12::bool[], $13::bytea[], $14::bytea[], $15::bytea[], $16::bytea[], $17::bytea[]) AS a
ON CONFLICT (id) DO NOTHING
RETURNING id


-- name: watch (prepared)
-- Note on a record in progress that somebody waits for it.
UPDATE {table} SET waited = true WHERE id = $1::bytea AND state IN ({in_progress}) AND NOT waited


-- name: scan_open
-- A page of open and failed records, from their own small index.
SELECT {now}, {columns}
FROM {table} AS r
WHERE r.state IN ({listed}) AND r.format IN ({formats}) AND r.state = ANY($1::int2[]) AND r.id > $2::bytea
      AND ($3::int8 IS NULL OR CASE WHEN r.state IN ({in_progress}) THEN r.lease_until ELSE r.due_at END
           <= $3 + CASE WHEN $3 <= 0 THEN {now} ELSE 0 END)
ORDER BY r.id LIMIT $4::int8


-- name: scan_due
-- A page of unknown records that are due, the longest due first, from the queue's own index.
SELECT {now}, {columns}
FROM {table} AS r
WHERE r.state = {unknown} AND r.format IN ({formats}) AND r.due_at <= (SELECT $1::int8 + CASE WHEN $1 <= 0 THEN {now} ELSE 0 END)
      AND (r.due_at, r.id) > ($2::int8, $3::bytea)
ORDER BY r.due_at, r.id LIMIT $4::int8


-- name: scan_undated
-- A page of unknown records that have no time.
SELECT {now}, {columns}
FROM {table} AS r
WHERE r.state = {unknown} AND r.format IN ({formats}) AND r.due_at IS NULL AND r.id > $1::bytea
ORDER BY r.due_at, r.id LIMIT $2::int8


-- name: scan_all
-- A page of records in any state, in the order of the primary key; what cannot be read is there to be counted.
SELECT {now}, {columns}
FROM {table} AS r
WHERE (r.state = ANY($1::int2[]) OR r.format NOT IN ({formats})) AND r.id > $2::bytea
      AND ($3::int8 IS NULL OR CASE WHEN r.state IN ({in_progress}) THEN r.lease_until ELSE r.due_at END
           <= $3 + CASE WHEN $3 <= 0 THEN {now} ELSE 0 END)
ORDER BY r.id LIMIT $4::int8


-- name: purge
-- Delete a small batch of finished records past expires_at. Locked rows are left to whoever holds them, and the
-- condition is asked again of the row that is deleted.
WITH due AS (
    SELECT id FROM {table}
    WHERE expires_at <= (SELECT {now}) AND state IN ({final}) AND format IN ({formats})
    ORDER BY expires_at LIMIT $1::int8 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM {table} AS r USING due
    WHERE r.id = due.id AND r.expires_at <= {now} AND r.state IN ({final})
    RETURNING 1
)
SELECT count(*) FROM gone


-- name: purge_softly
-- Drop the answers of completed records past due_at; their keys stay.
WITH due AS (
    SELECT id FROM {table}
    WHERE due_at <= (SELECT {now}) AND state = {completed} AND format IN ({formats})
    ORDER BY due_at LIMIT $1::int8 FOR UPDATE SKIP LOCKED
), gone AS (
    UPDATE {table} AS r SET state = {expired}, version = r.version + 1, outcome = '', due_at = NULL
    FROM due WHERE r.id = due.id AND r.due_at <= {now} AND r.state = {completed}
    RETURNING 1
)
SELECT count(*) FROM gone


-- name: stats_open
-- Exact counts of open and failed records, from their own small index.
SELECT state, count(*) FROM {table} WHERE state IN ({listed}) GROUP BY state


-- name: stats_all
-- Exact counts of everything: asked of small tables only.
SELECT state, count(*) FROM {table} GROUP BY state


-- name: stats_table
-- What the server knows of the table without reading it: rows by its last estimate, bytes, its own version.
SELECT c.reltuples::int8, pg_relation_size(c.oid), pg_total_relation_size(c.oid), current_setting('server_version')
FROM pg_class AS c WHERE c.oid = $1::text::regclass


-- name: begin (patient)
-- A migration is one transaction.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE


-- name: migrate_lock (patient)
-- One migration at a time, and as long as it takes; only for this transaction, so that a pooler may stand between.
SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '30s', true),
       pg_advisory_xact_lock(hashtextextended('oncekey migrate', 0))


-- name: migrate_prepare (patient)
-- Where the versions of schemas are noted.
CREATE TABLE IF NOT EXISTS {schema} (
    name text NOT NULL,
    version int4 NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
)


-- name: migrate_note (patient)
-- Note that this version is there.
INSERT INTO {schema} (name, version) VALUES ($1::text, $2::int4)


-- name: commit (patient)
-- The end of a migration.
COMMIT


-- name: versions (anywhere)
-- Which versions of our table are there.
SELECT version FROM {schema} WHERE name = $1::text ORDER BY version


-- name: check_server (anywhere)
-- The settings that could lose records, and the two tables, if they are there.
SELECT current_setting('server_version_num')::int4, current_setting('server_version'),
       current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'),
       pg_is_in_recovery(), current_setting('transaction_read_only')::bool, current_setting('transaction_isolation'),
       current_setting('autovacuum')::bool,
       (SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)),
       to_regclass($2::text) IS NOT NULL, current_setting('oncekey.pooled', true) IS NOT DISTINCT FROM 'yes'


-- name: arrive (anywhere)
-- The first thing that a new connection asks: is there a pooler before the server (it shows another process id), does
-- the server refuse writes; and the lane's settings, which through a pooler hold for this one statement only.
SELECT pooled, current_setting('transaction_read_only')::bool, count(
    set_config(name, CASE WHEN value = 'on' AND current_setting(name) = 'remote_apply' THEN 'remote_apply' ELSE value END, pooled)
)
FROM (SELECT CASE $1::text WHEN 'auto' THEN pg_backend_pid() <> $2::int4 ELSE $1 = 'yes' END AS pooled) AS here,
     unnest($3::text[], $4::text[]) AS s(name, value)
GROUP BY pooled


-- name: pooled_begin
-- Through a pooler each transaction may be on another connection, so each says all that it needs.
BEGIN ISOLATION LEVEL READ COMMITTED


-- name: pooled_settings
-- The lane's settings, for this transaction.
SELECT count(
    set_config(name, CASE WHEN value = 'on' AND current_setting(name) = 'remote_apply' THEN 'remote_apply' ELSE value END, true)
)
FROM unnest($1::text[], $2::text[]) AS s(name, value)


-- name: pooled_commit
-- What was written is durable when this is answered.
COMMIT
