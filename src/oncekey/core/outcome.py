"""How an outcome is written down: an answer of HTTP, the mark of one that was not kept, or a plain value.

The bytes begin with one that says format (high half) and kind (low half); what this code does not know is refused,
never guessed. Headers keep their order, duplicates, and the spelling of their names, byte for byte.

    answer      0x10  status, number of headers, headers, length of the body, body
    tombstone   0x11  status, reason as UTF-8
    value       0x12  bytes
    journal     0x13  what an operation without an outcome has done so far: see core.journal
    signed      0x14  length of a journal, a journal that is a trail and a trace alone, then any of the first three

    status      one byte, class * 32 + the last two digits where those are below 32; else a zero and two bytes
    header      one byte: 0 a literal name and value, 1 a content-length that is the body's true one, otherwise a line
                of STATIC, which gives name and value, or the name alone with a value behind it
    lengths     as in core.pieces
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oncekey.core.journal import KIND as _JOURNAL
from oncekey.core.journal import Audit, Journal, Trace, pack_journal, read_entries, read_journal
from oncekey.core.pieces import SMALL, length, read_length, read_text, text
from oncekey.errors import RecordUnreadable

Header = tuple[bytes, bytes]

_ANSWER, _TOMBSTONE, _VALUE = 0x10, 0x11, 0x12
_LITERAL, _TRUE_LENGTH = 0, 1
_FIRST_STATIC = 2

# Stored bytes point into this table: lines are only ever added at its end, and none is changed.
# The second spelling of the common ones is that of WSGI.
STATIC: tuple[tuple[bytes, bytes | None], ...] = (
    (b"content-type", b"application/json"),
    (b"Content-Type", b"application/json"),
    (b"content-type", b"application/json; charset=utf-8"),
    (b"Content-Type", b"application/json; charset=utf-8"),
    (b"content-type", b"application/problem+json"),
    (b"Content-Type", b"application/problem+json"),
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"Content-Type", b"text/plain; charset=utf-8"),
    (b"content-type", b"text/html; charset=utf-8"),
    (b"Content-Type", b"text/html; charset=utf-8"),
    (b"content-type", b"application/x-amz-json-1.0"),
    (b"content-type", b"application/x-amz-json-1.1"),
    (b"content-length", None),
    (b"Content-Length", None),
    (b"content-type", None),
    (b"Content-Type", None),
    (b"location", None),
    (b"Location", None),
    (b"content-location", None),
    (b"Content-Location", None),
    (b"etag", None),
    (b"ETag", None),
    (b"last-modified", None),
    (b"Last-Modified", None),
    (b"cache-control", None),
    (b"Cache-Control", None),
    (b"cache-control", b"no-store"),
    (b"Cache-Control", b"no-store"),
    (b"cache-control", b"no-cache"),
    (b"Cache-Control", b"no-cache"),
    (b"vary", None),
    (b"Vary", None),
    (b"vary", b"Accept"),
    (b"Vary", b"Accept"),
    (b"vary", b"Accept-Encoding"),
    (b"vary", b"Origin"),
    (b"content-encoding", None),
    (b"content-encoding", b"gzip"),
    (b"content-language", None),
    (b"Content-Language", None),
    (b"content-disposition", None),
    (b"Content-Disposition", None),
    (b"link", None),
    (b"Link", None),
    (b"allow", None),
    (b"Allow", None),
    (b"retry-after", None),
    (b"access-control-allow-origin", None),
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-credentials", b"true"),
    (b"access-control-expose-headers", None),
    (b"x-content-type-options", b"nosniff"),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"X-Frame-Options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"Referrer-Policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"strict-transport-security", None),
    (b"Strict-Transport-Security", None),
    (b"content-security-policy", None),
    (b"stripe-version", None),
    (b"pspreference", None),
    (b"paypal-debug-id", None),
)

_PAIRS = {line: bytes((code,)) for code, line in enumerate(STATIC, _FIRST_STATIC) if line[1] is not None}
_NAMES = {name: bytes((code,)) for code, (name, value) in enumerate(STATIC, _FIRST_STATIC) if value is None}
_LENGTH_NAMES = (b"content-length", b"Content-Length")
_MARKED_LENGTH = {name: bytes((_TRUE_LENGTH, spelling)) for spelling, name in enumerate(_LENGTH_NAMES)}


class Answer(NamedTuple):
    """What a client was told, to be told again."""

    status: int
    headers: Sequence[Header]
    body: bytes


class Tombstone(NamedTuple):
    """The work is done and its answer was not kept; `reason` says why, in a word or a few."""

    status: int
    reason: str


class Value(NamedTuple):
    """What a function returned, in bytes of its own."""

    data: bytes


Outcome = Answer | Tombstone | Value | Journal


def pack(status: int, headers: Sequence[Header], body: bytes) -> bytes:
    """An answer as bytes."""
    size = len(body)
    parts = [b"\x10", _STATUSES.get(status) or _status(status), length(len(headers))]
    parts += [_PAIRS.get(header) or _header(header[0], header[1], size) for header in headers]
    parts += (length(size), body)
    return b"".join(parts)


def tombstone(status: int, reason: str) -> bytes:
    """The mark of an answer that was not kept."""
    return b"\x11" + _status(status) + reason.encode("utf-8", "replace")


def pack_value(data: bytes) -> bytes:
    """A plain value as bytes."""
    return b"\x12" + data


def sign(outcome: bytes, lasting: Sequence[Audit | Trace]) -> bytes:
    """An outcome that carries the trail of who changed its record from outside, and why, and the trace of its run."""
    return b"\x14" + text(pack_journal(Journal(tuple(lasting)))) + outcome if lasting else outcome


def trail_of(data: bytes) -> tuple[Audit, ...]:
    """The trail that a journal or an outcome carries; empty if nobody has changed its record from outside."""
    return carried_by(data).trail


def carried_by(data: bytes) -> Journal:
    """The journal that these bytes are, or what an outcome carries of it."""
    return read_journal(data if data[:1] == b"\x13" else _unsigned(data)[0])


def _unsigned(data: bytes) -> tuple[bytes, bytes]:
    """The trail, then the outcome behind it."""
    if data[:1] != b"\x14":
        return b"", data
    try:
        trail, at = read_text(data, 1)
    except (IndexError, ValueError) as damaged:
        raise RecordUnreadable(f"the stored outcome is damaged: {damaged}") from damaged
    if data[at : at + 1] == b"\x14":
        raise RecordUnreadable("the stored outcome is damaged: it is signed twice")
    return trail, data[at:]


def unpack(data: bytes) -> Outcome:
    """Read an outcome back; refuse another format and a damaged one."""
    if data[:1] == b"\x14":
        data = _unsigned(data)[1]
    kind = data[0] if data else None
    try:
        if kind == _ANSWER:
            return _answer(data)
        if kind == _TOMBSTONE:
            status, at = _read_status(data)
            return Tombstone(status, data[at:].decode())
        if kind == _JOURNAL:
            return read_entries(data)
    except (IndexError, ValueError) as damaged:
        raise RecordUnreadable(f"the stored outcome is damaged: {damaged}") from damaged
    if kind == _VALUE:
        return Value(data[1:])
    found = "is empty" if kind is None else f"has format {kind >> 4}, kind {kind & 15}"
    raise RecordUnreadable(
        f"the stored outcome {found}, which this version cannot read: was it written by a newer one?"
    )


def _header(name: bytes, value: bytes, body_length: int) -> bytes:
    marked = _MARKED_LENGTH.get(name)
    if marked is not None and value == b"%d" % body_length:
        return marked
    code = _NAMES.get(name)
    if code is not None:
        return code + length(len(value)) + value
    return b"\x00" + length(len(name)) + name + length(len(value)) + value


def _answer(data: bytes) -> Answer:
    status, at = _read_status(data)
    count, at = read_length(data, at)
    headers: list[Header] = []
    lengths_at: list[tuple[int, bytes]] = []
    for number in range(count):
        code = data[at]
        at += 1
        if code == _TRUE_LENGTH:
            lengths_at.append((number, _LENGTH_NAMES[data[at]]))
            headers.append((b"", b""))
            at += 1
            continue
        name, value = STATIC[code - _FIRST_STATIC] if code else (None, None)
        if name is None:
            name, at = read_text(data, at)
        if value is None:
            value, at = read_text(data, at)
        headers.append((name, value))
    size, at = read_length(data, at)
    if at + size != len(data):
        raise ValueError(f"{len(data) - at} bytes of body where {size} were written")
    for number, name in lengths_at:
        headers[number] = (name, b"%d" % size)
    return Answer(status, tuple(headers), data[at:])


def _status(status: int) -> bytes:
    family, last = divmod(status, 100)
    if last < 32 and 0 < family < 8:  # noqa: PLR2004 - five bits and three, see the top
        return SMALL[family << 5 | last]
    return b"\x00" + status.to_bytes(2, "big")


_STATUSES = {status: _status(status) for status in range(200, 600)}


def _read_status(data: bytes) -> tuple[int, int]:
    code = data[1]
    if code:
        return (code >> 5) * 100 + (code & 31), 2
    return data[2] << 8 | data[3], 4
