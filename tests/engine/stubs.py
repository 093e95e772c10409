"""Small real parts for engine tests: a claim, who asked, and a store whose verbs can be made to fail or wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from oncekey.core.commands import Claim
from oncekey.core.flows import Terms
from oncekey.core.record import State
from oncekey.errors import StoreUnavailable
from oncekey.stores.memory import MemoryStore

TERMS = Terms(keep_for=86_400_000, reconcile_after_for=5_000)


class Same:
    """A request whose fingerprint is `f`."""

    def same_request(self, stored: bytes) -> bool:
        return stored == b"f"


def claim(name: str = "k", lease_for: int = 30_000, state: State = State.EXECUTING) -> Claim:
    return Claim(name.encode().ljust(20, b"."), os.urandom(16), b"f", lease_for, state)


class Shaky:
    """A memory store behind a link that can be cut: verbs named in `down` raise, before or after they were done."""

    url = "shaky://"

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.down: set[str] = set()
        self.lose_replies = False
        self.called = threading.Event()

    def _do(self, verb: str, many: Sequence[Any]) -> Any:
        self.called.set()
        if verb in self.down and not self.lose_replies:
            raise StoreUnavailable("the link is cut")
        answer = getattr(self.inner, verb)(many)
        if verb in self.down:
            raise StoreUnavailable("the reply was lost")
        return answer

    def claim(self, many: Any) -> Any:
        return self._do("claim", many)

    def settle(self, many: Any) -> Any:
        return self._do("settle", many)

    def renew(self, many: Any) -> Any:
        return self._do("renew", many)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
