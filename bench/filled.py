"""Tables full of real records: one is made by OnceKey itself, and copied under as many other ids as are wanted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import struct
import time

from bench.traffic import ANSWER, CREATED
from oncekey.core.commands import Claim, Settlement
from oncekey.core.outcome import pack
from oncekey.core.record import Label, State
from oncekey.stores.contract import Store
from oncekey.stores.open import open_store

DAY = 86_400_000


def nth(number: int) -> bytes:
    """The id of one of the copies."""
    return hashlib.sha256(struct.pack(">q", number)).digest()[:20]


def a_claim(id_: bytes | None = None) -> Claim:
    """The claim of the bench's payment."""
    label = Label("612203662a99", "POST /pay", "0af7651916cd43dd8448eb211c80319c")
    return Claim(id_ or os.urandom(20), os.urandom(16), b"\x13" + os.urandom(32), 30_000, label=label)


def finish(store: Store, claim: Claim) -> None:
    """Settle it with the payment's answer."""
    headers = [(b"content-length", b"%d" % len(ANSWER)), (b"content-type", b"application/json")]
    outcome = b"\x10" + pack(CREATED, headers, ANSWER)
    store.settle([Settlement(claim.id, claim.token, State.COMPLETED, outcome, DAY)])


def fill(url: str, count: int, *, expired: bool = False, unknown: bool = False) -> None:
    """An empty store, migrated and filled with finished records; `expired` ones have been over for an hour.

    `unknown` instead: outcomes that nobody knows, each to be asked about at a time of its own.
    """
    store = open_store(url)
    with contextlib.closing(store):
        store.migrate()
        claim = a_claim()
        if not store.claim([claim]):
            raise RuntimeError("no claim, no copies")
        if unknown:
            store.settle([Settlement(claim.id, claim.token, State.UNKNOWN, b"", None, 1, "TimeoutError: no answer")])
        else:
            finish(store, claim)
    at = int(time.time() * 1000) + (-3_600_000 if expired else DAY)
    times = {"due_at": f"{at} + n"} if unknown else {"expires_at": str(at)}
    (_fill_sqlite if url.startswith("sqlite") else _fill_postgres)(url, count, claim.id, times)


def _fill_postgres(url: str, count: int, model: bytes, times: dict[str, str]) -> None:
    import psycopg

    from oncekey.stores.postgres.options import read_options

    table = read_options(url, 5).table
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        found = connection.execute(f"select * from {table} limit 0".encode()).description or []
        names = [column.name for column in found]
        made = {"id": "substr(sha256(int8send(n)), 1, 20)"} | times
        columns = ", ".join(made.get(name, f"model.{name}") for name in names)
        connection.execute(
            f"insert into {table} ({', '.join(names)}) select {columns} from {table} model, "
            f"generate_series(1::int8, {count}) n where model.id = %b".encode(),
            (model,),
        )
        connection.execute(f"vacuum (analyze) {table}".encode())
        connection.execute("checkpoint")


def _fill_sqlite(url: str, count: int, model: bytes, times: dict[str, str]) -> None:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as db:
        db.create_function("nth", 1, nth, deterministic=True)
        db.execute("pragma cache_size = -2000000")
        db.execute("pragma synchronous = off")
        table = "oncekey_record"
        names = [row[1] for row in db.execute(f"pragma table_info({table})") if row[1] != "seq"]
        made = {"id": "nth(n)"} | times
        columns = ", ".join(made.get(name, f"model.{name}") for name in names)
        db.execute(
            f"with recursive count(n) as (select 1 union all select n + 1 from count where n < {count}) "
            f"insert into {table} ({', '.join(names)}) select {columns} from {table} model, count where model.id = ?",
            (model,),
        )
        db.execute("pragma wal_checkpoint(truncate)")
