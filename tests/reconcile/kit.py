"""Unknown outcomes, and reconcilers that ask about them."""

from __future__ import annotations

from collections.abc import Callable

from oncekey.core.journal import Call, Journal
from oncekey.core.record import Label, State
from oncekey.engine.journals import sealed
from oncekey.engine.sealing import Sealer
from oncekey.reconcile import Finding, Inquiry, Pace, Reconciler, Resolvers, Rules
from oncekey.stores.contract import Store
from oncekey.testing.bench import a_claim, a_settlement

SEALER = Sealer()
ENDPOINT = "POST /payments"
CALL = Call("psp.charge", "k" * 36, "POST https://psp.example/charges")


def unknown(store: Store, endpoint: str = ENDPOINT, key: str = "k", *, due_for: int | None = 1) -> bytes:
    """An operation whose attempt called somebody and was never heard of again."""
    claim = a_claim(label=Label("scope", endpoint, key))
    store.claim([claim])
    journal = sealed(claim.id, Journal((CALL,)), SEALER)
    store.settle([a_settlement(claim, State.UNKNOWN, outcome=journal, keep_for=None, due_for=due_for)])
    return claim.id


def many_unknown(store: Store, count: int) -> set[bytes]:
    """The same, so many, in batches."""
    ids: set[bytes] = set()
    for _ in range(0, count, 100):
        claims = [a_claim(label=Label("scope", ENDPOINT, "k")) for _ in range(100)]
        store.claim(claims)
        store.settle([a_settlement(one, State.UNKNOWN, outcome=b"", keep_for=None, due_for=1) for one in claims])
        ids |= {one.id for one in claims}
    return ids


def rules(resolver: Callable[[Inquiry], Finding], endpoint: str = ENDPOINT, pace: Pace | None = None) -> Rules:
    """One resolver, asked without haste."""
    resolvers = Resolvers()
    resolvers.add(endpoint, resolver)
    return Rules(resolvers, SEALER, pace or Pace(at_once=2))


def reconciler(store: Store, resolver: Callable[[Inquiry], Finding], pace: Pace | None = None) -> Reconciler:
    """A worker with one resolver."""
    return Reconciler(store, rules(resolver, pace=pace))


def paid(inquiry: Inquiry) -> Finding:
    """The charge is there."""
    return inquiry.landed(201, {"id": "ch_1"}, seen="charge ch_1")


def not_there(inquiry: Inquiry) -> Finding:
    """It was cancelled, and then nothing was found."""
    return inquiry.cancelled("V-77").not_done("no charge under this key")


def silent(inquiry: Inquiry) -> Finding:
    """The receiver does not answer."""
    return inquiry.unclear("no answer")
