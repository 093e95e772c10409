"""The marks by which a request steers the simulated provider, found anywhere in its body.

probe:ref=TOKEN           count this run under TOKEN
probe:delay=MS            take that long
probe:fail=STATUS         fail with STATUS after having begun
probe:fail-once=STATUS    the same, in the first run for this ref only
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import unquote_plus

# A token may have dots and colons inside, so that a sentence's full stop after it is not part of it.
_NAME = r"[A-Za-z0-9_~-]+(?:[.:](?!probe:)[A-Za-z0-9_~-]+)*"
_REF = re.compile(rf"probe:ref=({_NAME})")
_DELAY = re.compile(r"probe:delay=(\d{1,9})")
_FAIL = re.compile(r"probe:fail=([45]\d\d)(?!\d)")
_FAIL_ONCE = re.compile(r"probe:fail-once=([45]\d\d)(?!\d)")

# Nobody waits longer for an answer, and a slip of the finger should not hold a worker for days.
LONGEST_DELAY = 600_000


class Marks(NamedTuple):
    """What the marks ask for; `ref` is never empty."""

    ref: str
    delay_for: int = 0
    fail: int | None = None
    fail_once: int | None = None


def marks_of(body: bytes) -> Marks:
    """Read the marks of a body. Without a ref, equal bodies share one made from their bytes."""
    if b"probe" not in body:
        return Marks(_anonymous(body))
    text = unquote_plus(body.decode("utf-8", "replace"))
    ref = _REF.search(text)
    delay = _number(_DELAY, text) or 0
    return Marks(
        ref[1] if ref else _anonymous(body), min(delay, LONGEST_DELAY), _number(_FAIL, text), _number(_FAIL_ONCE, text)
    )


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None


def _anonymous(body: bytes) -> str:
    return "body-" + hashlib.sha256(body).hexdigest()[:16]
