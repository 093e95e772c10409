"""What brokers send, read into the words of a Message. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oncekey.effects.inbox.message import ID_HEADER


def text(value: Any) -> str:
    """A header's value as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value)


def texts(headers: Iterable[tuple[Any, Any]]) -> dict[str, str]:
    """Headers as text; of one that comes twice, the last. A broker that keeps their order sends a copy last."""
    return {text(name): text(value) for name, value in headers if value is not None}


def id_in(headers: Mapping[str, str], *others: object) -> str | None:
    """What its producer named a message: our header, else the first of the broker's own names that there is."""
    for name, value in headers.items():
        if name.lower() == ID_HEADER and value:
            return value
    return next((text(other) for other in others if other), None)
