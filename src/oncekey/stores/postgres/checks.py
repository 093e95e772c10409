"""What a look at the server's settings means: refusals stop the start, warnings are said aloud. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncekey.stores.contract import Finding
from oncekey.stores.postgres.options import Options

OLDEST = 130000


class Facts(NamedTuple):
    """A row of check_server."""

    version_number: int
    version: str
    synchronous_commit: str
    fsync: str
    full_page_writes: str
    is_replica: bool
    is_read_only: bool
    isolation: str
    autovacuum: bool
    persistence: str | None
    has_versions: bool
    pooled: bool


def judged(facts: Facts, versions: Sequence[int], newest: int, options: Options) -> list[Finding]:
    """All findings, the server's own first."""
    return [*_server(facts, options), *_durability(facts), *_schema(facts, versions, newest, options)]


def _server(facts: Facts, options: Options) -> list[Finding]:
    found = [Finding("ok", f"PostgreSQL {facts.version}")]
    if facts.version_number < OLDEST:
        found = [
            Finding("refusal", f"PostgreSQL {facts.version} is too old", f"use version {OLDEST // 10000} or later")
        ]
    if facts.is_replica:
        found.append(
            Finding(
                "refusal",
                "the server is a replica: it may lag behind, and nothing can be claimed on it",
                "point the store's URL at the primary (with several hosts: target_session_attrs=read-write)",
            )
        )
    elif facts.is_read_only:
        found.append(
            Finding(
                "refusal",
                "transactions are read-only here: nothing can be claimed",
                "set default_transaction_read_only to off for this user and database",
            )
        )
    if facts.isolation != "read committed":
        # The lanes set it when they arrive; it can only differ if somebody in between dropped that.
        found.append(
            Finding(
                "refusal",
                f"transactions run at {facts.isolation}, though the store asked for read committed",
                "if PgBouncer or the like stands before the server, add oncekey_pooler=yes to the store's URL",
            )
        )
    if facts.pooled and options.listen_conninfo == options.conninfo:
        found.append(
            Finding(
                "warning",
                "a pooler stands before the server: claims are safe and somewhat slower, but held duplicates may not "
                "be woken, for LISTEN does not work through a pooler in transaction mode",
                "add oncekey_listen=host:port to the store's URL, with the server's own address",
            )
        )
    return found


def _durability(facts: Facts) -> list[Finding]:
    found = []
    if facts.synchronous_commit not in {"on", "remote_apply"}:
        found.append(
            Finding(
                "refusal",
                f"synchronous_commit is {facts.synchronous_commit}: acknowledged claims could be lost in a crash",
                "if PgBouncer or the like stands before the server, add oncekey_pooler=yes to the store's URL",
            )
        )
    if facts.fsync != "on":
        found.append(
            Finding("refusal", "fsync is off: a crash of the machine loses or breaks records", "set fsync = on")
        )
    if facts.full_page_writes != "on":
        found.append(
            Finding(
                "warning",
                "full_page_writes is off: a crash of the machine can tear pages, unless the file system forbids it",
                "set full_page_writes = on",
            )
        )
    if not facts.autovacuum:
        found.append(Finding("warning", "autovacuum is off: settled and purged records pile up", "set autovacuum = on"))
    return found


def _schema(facts: Facts, versions: Sequence[int], newest: int, options: Options) -> list[Finding]:
    if facts.persistence is None:
        return [Finding("refusal", f"the table {options.table} is not there", f"run: {options.migrate_command}")]
    found = []
    if facts.persistence != "p":
        found.append(
            Finding(
                "refusal",
                f"the table {options.table} is not durable: a crash of the server empties it",
                f"run: ALTER TABLE {options.table} SET LOGGED",
            )
        )
    there = max(versions, default=0)
    if there < newest:
        what = f"the schema has version {there}, this code needs {newest}"
        found.append(Finding("refusal", what, f"run: {options.migrate_command}"))
    elif there > newest:
        what = f"the schema has version {there}, newer than the {newest} that this code knows"
        found.append(Finding("warning", what, "finish the roll-out of the newer OnceKey"))
    else:
        found.append(Finding("ok", f"schema version {there}"))
    return found
