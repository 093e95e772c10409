"""Stores with operations in them, for tests of what an operator sees."""

from __future__ import annotations

from typing import NamedTuple

from oncekey.core.commands import Claim, Done, Settlement, Won
from oncekey.core.keys import endpoint_of, scope_of
from oncekey.core.outcome import pack
from oncekey.core.record import Guarantee, Label, State
from oncekey.stores.contract import Store

CALLER = "Bearer alice"
ENDPOINT = "POST /orders"
DAY = 86_400_000
BODY = b'{"id": "\xc3\xa9 1"}'
ANSWER = pack(201, [(b"content-type", b"application/json"), (b"location", b"/orders/1")], BODY)


class Made(NamedTuple):
    """One operation of a test: its key, its id and its token."""

    key: str
    id: bytes
    token: bytes


def claim(
    store: Store,
    key: str,
    *,
    lease_for: int = DAY,
    state: State = State.EXECUTING,
    guarantee: Guarantee = Guarantee.AT_MOST_ONCE,
) -> Made:
    """Take a key as a request of CALLER at ENDPOINT would."""
    hasher, caller = scope_of(CALLER, endpoint_of("POST", "/orders"))
    made = Made(key, hasher.record_id(key), key.encode().ljust(16, b".")[:16])
    label = Label(caller, ENDPOINT, key)
    [won] = store.claim([Claim(made.id, made.token, b"\x10" + bytes(16), lease_for, state, guarantee, label)])
    # A lease of a millisecond may be over before the store has answered: then it shows us our own record.
    assert isinstance(won, Won) or won.record.token == made.token
    return made


def settle(
    store: Store,
    made: Made,
    target: State,
    *,
    outcome: bytes = b"",
    keep_for: int | None = DAY,
    due_for: int | None = None,
    note: str = "",
) -> Made:
    """Settle it as its owner would."""
    keep_for = None if target is State.UNKNOWN else keep_for
    [written] = store.settle([Settlement(made.id, made.token, target, outcome, keep_for, due_for, note)])
    assert isinstance(written, Done)
    return made


def complete(store: Store, key: str, *, keep_for: int = DAY, outcome: bytes = ANSWER) -> Made:
    """A finished operation."""
    return settle(store, claim(store, key), State.COMPLETED, outcome=outcome, keep_for=keep_for)


def fill(store: Store) -> dict[str, Made]:
    """One of each kind: in progress, lapsed, unknown, failed, completed, and completed long ago."""
    unknown = settle(
        store, claim(store, "unknown"), State.UNKNOWN, due_for=1, note="TimeoutError: [red]no answer\x1b[2J"
    )
    failed = settle(store, claim(store, "failed"), State.FAILED_RETRYABLE, due_for=DAY, note="nothing was done")
    made = [
        claim(store, "running"),
        claim(store, "lapsed", lease_for=1),
        unknown,
        failed,
        complete(store, "completed"),
        complete(store, "old", keep_for=1),
    ]
    return {one.key: one for one in made}
