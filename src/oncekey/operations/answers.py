"""Answers as a person writes them: a JSON file with a status, headers, and a body in one of three ways."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from oncekey.core.outcome import Answer, Header
from oncekey.errors import ConfigurationError
from oncekey.http.capture import kept_headers

EXAMPLE = '{"status": 201, "headers": [["location", "/orders/1"]], "json": {"id": 1}}'
BODIES = ("json", "body")
KNOWN = {"status", "headers", "body_encoding", *BODIES}
# What `oncekey show --json --body` says of an answer beside these: it may be given back as it came.
SAID = {"kind", "size"}
ENCODINGS = ("utf-8", "base64")
STATUSES = range(200, 600)


def read_answer(text: str) -> Answer:
    """The answer that a file describes: `status`, `headers` as pairs or an object, and `json` or `body`."""
    try:
        fields = json.loads(text)
    except ValueError as wrong:
        raise ConfigurationError(f"the answer is not JSON ({wrong}): write {EXAMPLE}") from wrong
    if not isinstance(fields, dict):
        raise ConfigurationError(f"the answer is no JSON object: write {EXAMPLE}")
    strange = sorted(set(fields) - KNOWN - SAID)
    if strange:
        raise ConfigurationError(f"the answer has {strange[0]!r}, which means nothing here: write {EXAMPLE}")
    status = fields.get("status")
    if not isinstance(status, int) or status not in STATUSES:
        raise ConfigurationError(f"the answer's status is {status!r}: write a final status, such as 201")
    headers, body = _headers(fields.get("headers", [])), _body(fields)
    names = {name.lower() for name, _ in headers}
    if "json" in fields and b"content-type" not in names:
        headers.append((b"content-type", b"application/json"))
    if b"content-length" not in names:
        headers.append((b"content-length", b"%d" % len(body)))
    return answer(status, headers, body)


def answer(status: int, headers: list[Header], body: bytes) -> Answer:
    """An answer with the headers that may be kept; refused if one of them is no header of HTTP."""
    kept = kept_headers(headers)
    lengths = [value for name, value in kept if name.lower() == b"content-length"]
    if any(value != b"%d" % len(body) for value in lengths):
        raise ConfigurationError(f"the answer's content-length is not that of its body, {len(body)}: leave it out")
    return Answer(status, tuple(kept), body)


def _headers(given: Any) -> list[Header]:
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list):
        raise ConfigurationError('the answer\'s headers are no list: write [["location", "/orders/1"]]')
    headers = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or [type(word) for word in pair] != [str, str]:
            raise ConfigurationError(f'{pair!r} is no header: write a pair of texts, such as ["location", "/orders/1"]')
        try:
            header = (pair[0].encode("ascii"), pair[1].encode("latin-1"))
        except UnicodeEncodeError as wrong:
            raise ConfigurationError(f"the header {pair[0]!r} has letters that HTTP does not carry") from wrong
        headers.append(header)
    return headers


def _body(fields: dict[str, Any]) -> bytes:
    if all(name in fields for name in BODIES):
        raise ConfigurationError("the answer has both json and body: write one of them")
    if "json" in fields:
        return json.dumps(fields["json"], separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    body, encoding = fields.get("body", ""), fields.get("body_encoding", ENCODINGS[0])
    if not isinstance(body, str) or encoding not in ENCODINGS:
        raise ConfigurationError('the answer\'s body is a text, and body_encoding says "utf-8" or "base64" of it')
    if encoding == ENCODINGS[0]:
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise ConfigurationError(f"the answer's body is no base64: {wrong}") from wrong
