"""psycopg's errors as ours: a sentence that says what to change, and never the password."""

from __future__ import annotations

import psycopg

from oncekey.errors import OnceKeyError, SchemaMissing, StoreUnavailable
from oncekey.stores.postgres.options import Options

# SQLSTATE -> what to do about it.
_SENTENCES = {
    "25006": "it refuses writes, so it is a replica or set read-only: point the store's URL at the primary",
    "40001": "the transaction met another one: try again",
    "40P01": "the transaction met another one: try again",
    "42501": "its user may not do that: GRANT SELECT, INSERT, UPDATE, DELETE on the store's tables to it",
    "53100": "its disk is full: make room",
    "53300": "it has no connection left: raise max_connections, or lower oncekey_pool",
    "55P03": "another transaction holds the record: in a batch, the caller retries singly",
    "57014": "it did not finish within the time budget: raise store_for, or look for what keeps it busy",
}
_SCHEMA_MISSING = {"42P01", "42703", "3F000"}
# What a refused connection says, where its words are known; the server's own sentence is repeated in any case.
_ADVICE = {
    "password authentication failed": "correct user and password in the store's URL",
    "no password supplied": "write a password into the store's URL, or set PGPASSWORD",
    "no pg_hba.conf entry": "allow this host, user and database in the server's pg_hba.conf",
    "does not exist": "create it, or correct the store's URL",
    "Connection refused": "start the server, or correct host and port in the store's URL",
    "could not translate host name": "correct the host in the store's URL",
    "failed to resolve host": "correct the host in the store's URL",
    "session is read-only": "it is a replica or set read-only: point the store's URL at the primary",
}


def translated(error: psycopg.Error, options: Options) -> OnceKeyError:
    """What to raise for a failed exchange. After it nobody knows whether the write landed: repeat it by its token."""
    state = error.sqlstate
    if state in _SCHEMA_MISSING:
        return SchemaMissing(f"the store's tables are not there ({_words(error)}): run: {options.migrate_command}")
    if state in _SENTENCES:
        return StoreUnavailable(f"PostgreSQL at {options.shown}: {_SENTENCES[state]}")
    return StoreUnavailable(f"PostgreSQL at {options.shown} did not answer: {_words(error)}")


def unreachable(error: psycopg.Error | OSError, options: Options) -> OnceKeyError:
    """What to raise when no connection could be made."""
    words = _words(error)
    advice = next((advice for sign, advice in _ADVICE.items() if sign in words), "look at the server and its log")
    return StoreUnavailable(f"PostgreSQL at {options.shown} cannot be reached ({words}): {advice}")


def read_only(options: Options) -> OnceKeyError:
    """What to raise when the server refuses writes: nothing may be decided from a replica."""
    return StoreUnavailable(f"PostgreSQL at {options.shown}: {_SENTENCES['25006']}")


def out_of_time(options: Options) -> OnceKeyError:
    """What to raise when an answer did not come in time."""
    return StoreUnavailable(f"PostgreSQL at {options.shown}: {_SENTENCES['57014']}")


def busy(options: Options) -> OnceKeyError:
    """What to raise when no lane came free in time."""
    return StoreUnavailable(
        f"all {options.lanes} connections to PostgreSQL at {options.shown} stayed busy for {options.store_for:g} s: "
        f"raise oncekey_pool in the store's URL, or look for what keeps the server busy"
    )


def _words(error: psycopg.Error | OSError) -> str:
    """The first line of the primary message; details may quote a row."""
    message = (
        (error.diag.message_primary if isinstance(error, psycopg.Error) else None)
        or str(error).strip()
        or type(error).__name__
    )
    return message.splitlines()[0]
