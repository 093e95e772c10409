"""Keys: one for each thing that somebody wants done, made before the first attempt.

    new_key()                      UUIDv7: the server sees when it was made, and refuses it once it is too old
    random_key(), ulid()           UUIDv4, ULID
    derived("shop", "order", 17)   always the same for the same business identity; a UUIDv8 made of SHA-256
    tool_key(run, tool, args)      for agents and jobs: one call of a tool within one run, whatever the members' order

A derived key can be guessed by whoever knows the identity; that matters only where the server's scope is the bare key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
import uuid

from oncekey.core import jcs

__all__ = ["derived", "new_key", "random_key", "tool_key", "ulid"]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def random_key() -> str:
    """A UUIDv4: 122 random bits, and nothing else."""
    return str(uuid.uuid4())


def _timed() -> int:
    """128 bits: milliseconds since the epoch, then randomness."""
    return time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)


def new_key() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of time, 74 random bits."""
    return _uuid(_timed(), 7)


def ulid() -> str:
    """A ULID: 48 bits of time, 80 random bits, 26 characters."""
    bits = _timed()
    return "".join(_CROCKFORD[bits >> shift & 31] for shift in range(125, -5, -5))


def derived(namespace: str, *identity: str | int) -> str:
    """The key of a business identity: `derived("shop.example", "refund", order_id)`.

    Name the intent and not only the object: an order is paid once, and may be refunded twice.
    """
    if not namespace or not identity:
        raise ValueError("a derived key needs a namespace and an identity: derived('shop', 'order', order_id)")
    for part in identity:
        if isinstance(part, bool) or not isinstance(part, str | int):
            raise TypeError(f"{part!r} is no part of an identity: write text or a whole number")
    return _digest("oncekey derived 1", namespace, *(str(part) for part in identity))


def tool_key(run: str, tool: str, arguments: object) -> str:
    """The key of one tool call in one run of an agent or a job: the same call with the same arguments has the same."""
    advice = "these arguments have no canonical form: use JSON without NaN, infinities and lone surrogates"
    try:
        text = json.dumps(arguments).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{advice} ({error})") from error
    canonical = jcs.canonical(text)
    if canonical is None:
        raise ValueError(advice)
    return _digest("oncekey tool 1", run, tool, canonical.decode())


def _digest(*parts: str) -> str:
    framed = hashlib.sha256()
    for part in parts:
        data = part.encode()
        framed.update(len(data).to_bytes(8, "big") + data)
    return _uuid(int.from_bytes(framed.digest()[:16], "big"), 8)


def _uuid(bits: int, version: int) -> str:
    bits &= ~(0xF << 76 | 0b11 << 62)
    return str(uuid.UUID(int=bits | version << 76 | 0b10 << 62))
