"""The answer to a payment: the same bytes from the handler as from the reconciler, who makes it from the ledger."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tests.chaos.speech import Answer

Header = tuple[bytes, bytes]
CREATED = 201
# What belongs to one message, or says that this is a replay; all other headers are part of the answer.
OF_THE_MOMENT = frozenset({"date", "server", "connection", "idempotency-replayed"})


def payment(receipt: str, caller: str, key: str, amount: int) -> tuple[int, list[Header], bytes]:
    """Status, headers and body. The spaces are on purpose: who decodes and encodes it again changes the bytes."""
    body = f'{{"receipt" : "{receipt}",\n "caller" : "{caller}", "key" : "{key}", "amount" : {amount}.00}}'.encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"x-part", b"1"),
        (b"cache-control", b"no-store"),
        (b"x-part", b"2"),
        (b"content-length", str(len(body)).encode()),
    ]
    return CREATED, headers, body


def digest(answer: Answer) -> str:
    """What must be the same in all final answers: status, headers in their order, body."""
    kept = [header for header in answer.headers if header[0] not in OF_THE_MOMENT]
    return short(repr((answer.status, kept)).encode(), answer.body)


def short(*parts: bytes) -> str:
    """A digest that a person can compare."""
    whole = hashlib.sha256()
    for part in _framed(parts):
        whole.update(part)
    return whole.hexdigest()[:16]


def _framed(parts: Iterable[bytes]) -> Iterable[bytes]:
    for part in parts:
        yield len(part).to_bytes(8, "big")
        yield part
