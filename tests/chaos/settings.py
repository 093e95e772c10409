"""What a worker and a janitor are told by the harness, and what all of them know."""

from __future__ import annotations

import hashlib
import json
import os
from typing import NamedTuple, Self

from oncekey.core.flows import Terms
from oncekey.core.keys import endpoint_of, key_ref, scope_of
from oncekey.core.policy import Policy, ms
from oncekey.engine.sealing import Sealer
from tests.chaos.history import Operation

VARIABLE = "ONCEKEY_CHAOS"
PAYMENTS, NOTES = "/payments", "/notes"
# A note's key starts so; its record is kept for a lease only, so that there is something to purge.
NOTE = "note-"
# Short, because every pause, kill and black hole must outlast it.
LEASE_FOR = 1.5
STORE_FOR = 1.0
RECONCILE_AFTER_FOR = 1.0
KEEP_FOR = 86_400.0
# Longer than the shorter pauses: a worker that comes back from one finds the provider's reply.
PROVIDER_WITHIN = 2.5
TERMS = Terms(ms(KEEP_FOR), ms(RECONCILE_AFTER_FOR))


class Settings(NamedTuple):
    """One process's. `version` is that of the records which it writes; `mutant` names the bug that it has.

    `each` is how often a janitor goes to work, `wait_for` how long a worker holds duplicates.
    """

    store: str
    provider: int
    trace: str
    port: int = 0
    version: int = 1
    mutant: str = ""
    each: float = 0.1
    wait_for: float | None = None

    @classmethod
    def ours(cls) -> Self:
        """Those of this process."""
        return cls(**json.loads(os.environ[VARIABLE]))

    def told(self) -> str:
        """As the variable has it."""
        return json.dumps(self._asdict())


def policy(keep_for: float, wait_for: float | None = None) -> Policy:
    """The policy of one route."""
    return Policy(
        lease_for=LEASE_FOR,
        store_for=STORE_FOR,
        keep_for=keep_for,
        reconcile_after_for=RECONCILE_AFTER_FOR,
        wait_for=wait_for,
    )


def sealer(version: int) -> Sealer:
    """Outcomes are encrypted, and each version has a key of its own; it opens what older ones have sealed."""
    newest = max(version, 1)
    keys = {f"k{number}": hashlib.sha256(b"chaos %d" % number).digest() for number in range(1, newest + 1)}
    return Sealer(keys=keys, current=f"k{newest}")


def path_of(operation: Operation) -> str:
    """Where an operation is asked for."""
    return NOTES if operation.key.startswith(NOTE) else PAYMENTS


def ref_of(operation: Operation) -> str:
    """The name that OnceKey's own events give to an operation."""
    hasher, _ = scope_of(operation.caller, endpoint_of("POST", path_of(operation)))
    return key_ref(hasher.record_id(operation.key))
