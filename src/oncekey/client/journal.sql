-- name: schema
CREATE TABLE IF NOT EXISTS intents (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT    NOT NULL,
    identity      TEXT    NOT NULL,
    key           TEXT    NOT NULL UNIQUE,
    state         TEXT    NOT NULL CHECK (state IN ('open', 'done')),
    made_at       INTEGER NOT NULL,
    queue         TEXT    NOT NULL DEFAULT '',
    attempts      INTEGER NOT NULL DEFAULT 0,
    last_sent_at  INTEGER,
    trouble       TEXT    NOT NULL DEFAULT '',
    method        TEXT,
    url           TEXT,
    headers       TEXT,
    body          BLOB,
    ended_at      INTEGER,
    status        INTEGER,
    answer_headers TEXT,
    answer        BLOB,
    UNIQUE (name, identity)
) STRICT;
CREATE INDEX IF NOT EXISTS intents_open ON intents (queue, id) WHERE state = 'open';
CREATE INDEX IF NOT EXISTS intents_ended ON intents (ended_at) WHERE state = 'done';

-- name: add
INSERT INTO intents (name, identity, key, state, made_at, queue, method, url, headers, body)
VALUES (:name, :identity, :key, 'open', :now, :queue, :method, :url, :headers, :body)
ON CONFLICT DO NOTHING;

-- name: by_identity
SELECT * FROM intents WHERE name = :name AND identity = :identity;

-- name: by_key
SELECT * FROM intents WHERE key = :key;

-- name: open
SELECT * FROM intents WHERE state = 'open' AND (:queue IS NULL OR queue = :queue) ORDER BY queue, id LIMIT :limit;

-- name: count
SELECT count(*) FROM intents WHERE state = 'open';

-- name: sending
UPDATE intents SET attempts = attempts + 1, last_sent_at = :now, method = coalesce(method, :method),
    url = coalesce(url, :url), headers = coalesce(headers, :headers), body = coalesce(body, :body)
WHERE key = :key AND state = 'open';

-- name: trouble
UPDATE intents SET trouble = :trouble WHERE key = :key AND state = 'open';

-- name: done
UPDATE intents SET state = 'done', ended_at = :now, status = :status, answer_headers = :answer_headers, answer = :answer,
    headers = NULL, body = NULL, trouble = ''
WHERE key = :key AND state = 'open';

-- name: left
UPDATE intents SET state = 'done', ended_at = :now, headers = NULL, body = NULL
WHERE key = :key AND state = 'open' AND trouble = '';

-- name: forget
DELETE FROM intents WHERE key = :key;

-- name: prune
DELETE FROM intents WHERE state = 'done' AND ended_at < :before;
