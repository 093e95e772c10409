"""Claim, work and outcome in one transaction of the caller's: all of it, or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncekey.effects.transaction.context import Again, House, Transaction
from oncekey.effects.transaction.records import Records
from oncekey.effects.transaction.request import Request

if TYPE_CHECKING:
    from oncekey.engine.events import Events
    from oncekey.http.gate import Gate


def house(url: str, gate: Gate, said: Events) -> House:
    """What all transactions of one installation share."""
    return House(gate, Records(url, gate.policy.store_for), said)


__all__ = ["Again", "House", "Request", "Transaction", "house"]
