-- Unknown outcomes by the time at which to ask about them: the queue of reconcilers, and those that have no time.
CREATE INDEX oncekey_unknown ON oncekey_record (due_at, seq) WHERE state = 5 AND format = 1;
