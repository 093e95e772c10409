"""Commands for tests: one id per name, one token per attempt."""

from __future__ import annotations

import hashlib

from oncekey.core.commands import Claim, Settlement
from oncekey.core.record import State


def id_of(name: str) -> bytes:
    """The record id of a name."""
    return hashlib.sha256(name.encode()).digest()[:20]


def claim(name: str, attempt: str = "first", lease_for: int = 30_000) -> Claim:
    """Take the key of this name."""
    return Claim(id_of(name), hashlib.md5(attempt.encode()).digest(), b"fingerprint", lease_for)


def completed(claim: Claim, outcome: bytes = b"answer", keep_for: int = 60_000) -> Settlement:
    """Settle a claim with an answer."""
    return Settlement(claim.id, claim.token, State.COMPLETED, outcome, keep_for)
