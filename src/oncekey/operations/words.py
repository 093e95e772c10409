"""Durations, instants and foreign text as people read them, on a terminal and in the console."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

from oncekey.core.record import Record
from oncekey.operations.looking import is_dead_letter, next_of

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
# Characters that steer a terminal or change the direction of what follows; line ends are kept where they may be.
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def brief(length: int) -> str:
    """A duration in one unit, rounded down."""
    length = abs(length)
    for unit, letter in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")):
        if length >= (2 * unit if unit > SECOND else unit):
            return f"{length // unit}{letter}"
    return f"{length}ms"


def coming(record: Record, now: int) -> str:
    """What time does next, as two or three words."""
    found = next_of(record, now)
    if found is None:
        return "dead letter" if is_dead_letter(record) else "-"
    late = found.left_for <= 0
    said = {
        "lease": ("lease", "lapsed"),
        "due": ("due in", "overdue"),
        "retry": ("retry in", "retry"),
        "expires": ("expires", "expired"),
    }[found.what][late]
    return f"{said} {brief(found.left_for)}"


def instant(at: int | None, now: int) -> str:
    """An instant in UTC, and how far away it is by the store's clock."""
    if at is None:
        return "-"
    try:
        text = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "never"
    return f"{text} ({'in ' if at > now else ''}{brief(at - now)}{'' if at > now else ' ago'})"


def visible(text: str, *, lines: bool = False) -> str:
    """Foreign text that cannot steer a terminal nor mislead a reader: what is not to be seen stands as its escape."""
    return "".join(
        char if (lines and char in "\n\t") or unicodedata.category(char) not in UNSAFE else _escape(char)
        for char in text
    )


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def size(count: int) -> str:
    """A number of bytes."""
    return f"{count:,} bytes" if count != 1 else "1 byte"


def many(count: int, what: str) -> str:
    """So many of something: "1 attempt", "2 attempts"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
