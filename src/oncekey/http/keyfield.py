"""Finding the key in a request, wherever the dialect puts it. Whatever is odd there is a BadKey, never another error.

A key in a body is looked for in the top level of a JSON object. A body that cannot be read and still names the member
is refused, even where a key is optional: the application may read it more leniently than we do, and would then run
without protection.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson

from oncekey.core.keys import parse_key_lines, parse_key_text
from oncekey.errors import BadKey

if TYPE_CHECKING:
    from oncekey.http.grammar import Dialect
    from oncekey.http.messages import Request


def find_key(dialect: Dialect, request: Request, *, required: bool | None = None) -> str | None:
    """The request's key; None if it has none and none is required, or the dialect does not cover its method."""
    if request.method not in dialect.methods:
        return None
    try:
        if dialect.header is not None:
            lines = request.lines(dialect.header_name)
            key = parse_key_lines(lines, dialect.rule) if lines else None
        else:
            key = _in_body(dialect, request)
    except BadKey as bad:
        send = f"{bad.send.removesuffix('.')}, in {dialect.place}."
        raise BadKey(bad.rule, bad.detail, send) from None
    if key is None and (dialect.required if required is None else required):
        raise dialect.missing()
    return key


def _in_body(dialect: Dialect, request: Request) -> str | None:
    if request.header(b"content-encoding").strip().lower() not in {b"", b"identity"}:
        raise dialect.rule.refusal("unreadable", "The body is compressed, so its idempotency key cannot be read.")
    values = _values(dialect, request.body)
    if not values:
        return None
    if len(values) > 1:
        raise dialect.rule.refusal("repeated", f"The idempotency key stands {len(values)} times in the body.")
    return parse_key_text(values[0], dialect.rule)


def _values(dialect: Dialect, body: bytes) -> list[Any]:
    """All keys in the body; null is as good as absent."""
    try:
        parsed = orjson.loads(body)
    except ValueError:
        return _values_slowly(dialect, body)
    if not isinstance(parsed, dict):
        return []
    # The parser keeps the last of equal names; a second one shows in the text, plain or behind an escape.
    if b"\\u" in body or any(body.count(b'"%b"' % member.encode()) > 1 for member in dialect.members):
        return _values_slowly(dialect, body)
    return [parsed[member] for member in dialect.members if parsed.get(member) is not None]


def _values_slowly(dialect: Dialect, body: bytes) -> list[Any]:
    """The same with the standard library, which keeps equal names apart and reads what many applications accept."""
    try:
        pairs = json.loads(body, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        if any(member.encode() in body for member in dialect.members):
            detail = "The body names an idempotency key and is no readable JSON."
            raise dialect.rule.refusal("unreadable", detail) from None
        return []
    if not isinstance(pairs, _Pairs):
        return []
    return [value for name, value in pairs if name in dialect.members and value is not None]


class _Pairs(list[tuple[str, Any]]):
    """An object as the pairs that it was written as."""
