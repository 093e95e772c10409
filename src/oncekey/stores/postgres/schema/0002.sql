-- Version 2. Each statement has a name and a sentence; all of them commit together.


-- name: unknown_index
-- Finds unknown outcomes by the time at which to ask about them, and those that have no time. No renewal touches it.
CREATE INDEX {index_unknown} ON {table} (due_at, id) WHERE state = 5
