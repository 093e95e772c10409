"""Effects that commit with the work: on the caller's own connection, in the caller's own transaction."""
