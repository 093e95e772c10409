"""Stores of every kind, migrated, and finished operations of several callers in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from oncekey.core.commands import Claim, Settlement
from oncekey.core.keys import scope_of
from oncekey.core.outcome import Answer, pack, unpack
from oncekey.core.record import Label, Record, State
from oncekey.engine.sealing import Sealer
from oncekey.stores.contract import Store
from oncekey.stores.open import open_store

KINDS = ("memory", "sqlite", "postgres", "redis")
PLAIN = Sealer()
RING = Sealer.from_text("k1:" + "A" * 43 + "=")
DAY = 86_400_000


def url_of(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of an empty store of this kind."""
    if kind == "memory":
        return "memory://"
    if kind == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path')}/{kind}.db"
    url: str = request.getfixturevalue(f"{kind}_url")
    return f"{url}?scopes=keep" if kind == "redis" else url


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of this kind, with its schema."""
    with closing(open_store(url_of(kind, request), store_for=30)) as store:
        store.migrate()
        yield store


def taken(store: Store, caller: str, key: str, state: State = State.EXECUTING, lease_for: int = DAY) -> Claim:
    """A key that this caller has claimed."""
    hasher, digest = scope_of(caller, "POST /orders")
    id_ = hasher.record_id(key)
    token = key.encode().ljust(16, b".")[:16]
    claim = Claim(id_, token, b"\x10" + bytes(32), lease_for, state, label=Label(digest, "POST /orders", key))
    store.claim([claim])
    return claim


def ended(
    store: Store, claim: Claim, target: State = State.COMPLETED, *, outcome: bytes = b"", due_for: int | None = None
) -> Claim:
    """Settled by its owner."""
    keep_for = None if target is State.UNKNOWN else DAY
    store.settle([Settlement(claim.id, claim.token, target, outcome, keep_for, due_for, "a note")])
    return claim


def answered(store: Store, caller: str, key: str, sealer: Sealer = PLAIN) -> Claim:
    """A finished operation, whose answer names its caller and key."""
    claim = taken(store, caller, key)
    return ended(store, claim, outcome=sealer.seal(claim.id, pack(201, [], f"{caller} {key}".encode())))


def record_of(store: Store, id_: bytes) -> Record:
    """What stands there."""
    seen = store.get(id_)
    assert seen is not None
    return seen.record


def body_of(store: Store, claim: Claim, sealer: Sealer = PLAIN) -> bytes | str:
    """The body of the answer that is kept, or what is said instead of it."""
    outcome = unpack(sealer.open(claim.id, record_of(store, claim.id).outcome))
    return outcome.body if isinstance(outcome, Answer) else str(outcome)
