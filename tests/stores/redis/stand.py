"""What the tests of this room share: short ways to claims and settlements."""

from __future__ import annotations

import secrets
from typing import Any

from oncekey.core.commands import Claim, Settlement, Won
from oncekey.core.record import Record, State
from oncekey.stores.contract import Store

HOUR = 3_600_000
FINGERPRINT = bytes(range(33))


def a_claim(**changes: Any) -> Claim:
    """A claim on a key of its own."""
    return Claim(secrets.token_bytes(20), secrets.token_bytes(16), FINGERPRINT, HOUR)._replace(**changes)


def settlement(claim: Claim, target: State = State.COMPLETED, **changes: Any) -> Settlement:
    """Its settlement by its owner."""
    return Settlement(claim.id, claim.token, target, b"answer", HOUR)._replace(**changes)


def won(store: Store, **changes: Any) -> Claim:
    """A claim that was granted."""
    claim = a_claim(**changes)
    assert isinstance(store.claim([claim])[0], Won)
    return claim


def record(store: Store, id_: bytes) -> Record:
    """What stands there."""
    found = store.get(id_)
    assert found is not None
    return found.record
