"""The client's half: one key for each thing that is wanted, kept until there is a definite answer.

Transports are in modules of the names of their libraries: `oncekey.client.httpx`, `.requests`, `.aiohttp`, `.urllib3`.
"""

from __future__ import annotations

from oncekey.client.budget import Budget
from oncekey.client.carriage import Carriage, carriage
from oncekey.client.errors import (
    ClientError,
    GaveUp,
    IntentOver,
    IntentReused,
    JournalUnusable,
    Mismatch,
    NothingSent,
    OutcomeUnknown,
    QueueFull,
    Rejected,
)
from oncekey.client.journal import Journal, intent
from oncekey.client.keys import derived, new_key, random_key, tool_key, ulid
from oncekey.client.machine import Retries
from oncekey.client.outcomes import check

__all__ = [
    "Budget",
    "Carriage",
    "ClientError",
    "GaveUp",
    "IntentOver",
    "IntentReused",
    "Journal",
    "JournalUnusable",
    "Mismatch",
    "NothingSent",
    "OutcomeUnknown",
    "QueueFull",
    "Rejected",
    "Retries",
    "carriage",
    "check",
    "derived",
    "intent",
    "new_key",
    "random_key",
    "tool_key",
    "ulid",
]
