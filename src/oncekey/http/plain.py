"""Replies of our own endpoints: JSON, never cached, and problems (RFC 9457) that have nothing to do with a dialect."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from http import HTTPStatus
from typing import Any

from oncekey.http.messages import Headers, Reply, Request

# An endpoint without a colour: it yields what to ask of the store, as functions of it, and returns the reply.
Steps = Generator[Callable[[Any], Any], Any, Reply]
Endpoint = Callable[[Request], Steps]


def json_reply(status: int, value: Any, more: Iterable[tuple[bytes, bytes]] = (), media: str = "json") -> Reply:
    """An answer in compact JSON of pure ASCII."""
    body = json.dumps(value, separators=(",", ":")).encode()
    kind = (b"content-type", f"application/{media}".encode())
    headers: Headers = [kind, (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store"), *more]
    return Reply(status, headers, body)


def plain_problem(status: int, detail: str, more: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    """A refusal, with what to do in its detail."""
    value = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return json_reply(status, value, more, "problem+json")


def looking(id_: bytes) -> Callable[[Any], Any]:
    """A look at one record, to ask of a store of either colour."""
    return lambda store: store.get(id_)
