"""What goes out: a message as it is staged, and as it is handed to a publisher. Pure.

A message is named once, when it is staged, and keeps that name however often it is sent: brokers and consumers that
remember names recognise it.
"""

from __future__ import annotations

import os
import re
import time
import unicodedata
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from oncekey.effects.inbox.message import ID_HEADER
from oncekey.errors import ConfigurationError

LONGEST_NAME: Final = 255
LONGEST_HEADER: Final = 4096
CONTENT_TYPE: Final = "content-type"
JSON: Final = "application/json"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message on its way. `id` is the same however often it is sent; `staged_at` is in seconds since the epoch."""

    id: str
    topic: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    type: str = ""
    staged_at: float = 0.0
    attempts: int = 0
    position: int = 0

    @property
    def named_headers(self) -> dict[str, str]:
        """The headers with the message's id among them, as consumers of this project look for it."""
        return {**self.headers, ID_HEADER: self.id}


def new_id() -> str:
    """A UUID of version 7: unique, and close in the index to those of the same moment."""
    stamp = time.time_ns() // 1_000_000
    number = (stamp << 80) | int.from_bytes(os.urandom(10), "big")
    number &= ~(0xF << 76) & ~(0x3 << 62)
    return str(uuid.UUID(int=number | (7 << 76) | (2 << 62)))


def row_of(topic: str, body: Any, headers: Mapping[str, str] | None, key: str | None, type_: str) -> dict[str, Any]:
    """The values of a new row; what no broker could take is refused here, where the caller can still mend it."""
    data, content_type = encoded(body)
    kept = checked_headers(headers or {})
    if content_type and not any(name.lower() == CONTENT_TYPE for name in kept):
        kept[CONTENT_TYPE] = content_type
    return {
        "id": new_id(),
        "topic": _checked_name("topic", topic),
        "key": None if key is None else _checked_name("key", key),
        "type": _checked_name("type", type_) if type_ else "",
        "body": data,
        "headers": orjson.dumps(kept).decode(),
    }


def encoded(body: Any) -> tuple[bytes, str]:
    """The body's bytes, and what they are if we made them."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), ""
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    try:
        return orjson.dumps(body), JSON
    except TypeError as error:
        raise ConfigurationError(f"the body cannot be sent ({error}): give bytes, text, or what JSON can say") from None


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that every broker can carry."""
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ConfigurationError(f"header {name!r} cannot be sent: write letters, digits and - for its name")
        if name.lower() == ID_HEADER:
            raise ConfigurationError(f"the header {ID_HEADER} is the outbox's own: choose another name")
        if not isinstance(value, str) or len(value) > LONGEST_HEADER or _unseen(value):
            raise ConfigurationError(
                f"the value of header {name} cannot be sent: write text without line ends, {LONGEST_HEADER} characters "
                f"at most"
            )
    return dict(headers)


def _checked_name(what: str, text: object) -> str:
    if not isinstance(text, str) or not 1 <= len(text) <= LONGEST_NAME or _unseen(text):
        raise ConfigurationError(
            f"{what}={text!r} cannot be used: write text of 1 to {LONGEST_NAME} characters without line ends"
        )
    return text


def _unseen(text: str) -> bool:
    return any(unicodedata.category(char) in _UNSEEN for char in text)
