"""Commands for tests, and waiting for another session without sleeping through a guess."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import psycopg

from oncekey.core.commands import Claim, Settlement
from oncekey.core.record import Label, State

TABLE = "oncekey_records"
INSERT = (
    f"INSERT INTO {TABLE} (format, id, token, fingerprint, state, guarantee, claimed_at, lease_until, scope, "
    "endpoint, key) VALUES (1, %s, 'theirs', 'f', 2, 1, 0, 9000000000000, '', '', '')"
)


def claim(lease_for: int = 30_000, **changes: Any) -> Claim:
    """A claim on a key of its own."""
    made = Claim(os.urandom(20), os.urandom(16), os.urandom(33), lease_for, label=Label("scope", "POST /pay", "key"))
    return made._replace(**changes)


def done(claimed: Claim, outcome: bytes = b"201 Created", **changes: Any) -> Settlement:
    """How its work ended."""
    made = Settlement(claimed.id, claimed.token, State.COMPLETED, outcome, keep_for=86_400_000)
    return made._replace(**changes)


def until(holds: Callable[[], object], within: float = 20.0) -> None:
    """Return as soon as it holds."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


def until_blocked(watcher: psycopg.Connection[Any], word: str = "INSERT INTO", wait: str = "Lock") -> None:
    """Return when another session waits for a lock in such a statement."""
    seen = (
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = %s AND query LIKE %s AND datname = current_database()"
    )
    until(lambda: watcher.execute(seen, (wait, f"%{word}%")).fetchone())
