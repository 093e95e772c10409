-- The first schema: the records, and the version of the schema itself.

-- Which versions of the schema were applied, and when (milliseconds).
CREATE TABLE oncekey_schema (
    version INTEGER NOT NULL PRIMARY KEY,
    applied_at INTEGER NOT NULL
) STRICT;

-- One row per operation. STRICT and NOT NULL: a NULL key would be accepted twice, and 1 would equal '1'.
-- A rowid table: an update touches the newest pages instead of one page per key, three times faster at a million rows.
-- The outcome comes last, so that reading the other columns leaves its pages alone.
CREATE TABLE oncekey_record (
    seq INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE CHECK (length(id) BETWEEN 1 AND 64),
    format INTEGER NOT NULL,
    state INTEGER NOT NULL,
    waited INTEGER NOT NULL DEFAULT 0,
    guarantee INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 1,
    version INTEGER NOT NULL DEFAULT 1,
    token BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    claimed_at INTEGER NOT NULL,
    lease_until INTEGER,
    due_at INTEGER,
    expires_at INTEGER,
    next_at INTEGER GENERATED ALWAYS AS (CASE WHEN state IN (1, 2) THEN lease_until ELSE due_at END) VIRTUAL,
    scope TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    key TEXT NOT NULL,
    note TEXT NOT NULL DEFAULT '',
    outcome BLOB NOT NULL DEFAULT x''
) STRICT;

-- What is in progress, failed or unknown, in the order of its first claim: listed without a look at finished keys.
CREATE INDEX oncekey_open ON oncekey_record (seq, state, next_at) WHERE state IN (1, 2, 4, 5) AND format = 1;

-- What may be purged, by expiry.
CREATE INDEX oncekey_final ON oncekey_record (expires_at, state) WHERE state IN (3, 4, 6) AND format = 1;

-- Answers whose time is over before that of their keys.
CREATE INDEX oncekey_answer ON oncekey_record (due_at) WHERE state = 3 AND due_at IS NOT NULL AND format = 1;

-- Unsettled records for which somebody waits: nearly always empty, so asking costs next to nothing.
CREATE INDEX oncekey_waited ON oncekey_record (id) WHERE waited = 1 AND state IN (1, 2, 5);

-- Records that only newer code can read.
CREATE INDEX oncekey_foreign ON oncekey_record (format) WHERE format <> 1;
