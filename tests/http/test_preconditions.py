"""If-Match and If-None-Match, alone and behind a key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncekey import ConfigurationError, Declined
from oncekey.http.preconditions import conditional, etag, if_match, if_none_match
from tests.adapters import asgi_kit, wsgi_kit

# If-Match, the resource's tag -> the status, or None.
MATCHES = [
    ('"1"', '"1"', None),
    ('"1"', '"2"', 412),
    ('"1"', None, 412),
    ("*", '"1"', None),
    ("*", None, 412),
    ('"0", "1"', '"1"', None),
    ('"0","1" ,, "2"', '"2"', None),
    (' "1" ', '"1"', None),
    ('"a,b"', '"a,b"', None),
    ('W/"1"', '"1"', 412),
    ('"1"', 'W/"1"', 412),
    ('W/"1"', 'W/"1"', 412),
    ('""', '""', None),
    (None, '"1"', 428),
    ("1", '"1"', 400),
    ('"1', '"1"', 400),
    ('"1" "2"', '"1"', 400),
    ('*, "1"', '"1"', 400),
    ("", '"1"', 400),
    ('w/"1"', '"1"', 400),
    ('"a b"', '"a b"', 400),
]


@pytest.mark.parametrize(("header", "current", "status"), MATCHES)
def test_if_match_compares_strongly(header: str | None, current: str | None, status: int | None) -> None:
    """A list or `*`; weak tags never match; what is no list of tags is refused, and so is its absence."""
    unmet = if_match(header, current)
    assert (unmet and unmet.status) == status
    assert if_match(None, current, required=False) is None


@pytest.mark.parametrize(
    ("header", "current", "status"),
    [
        *((None, '"1"', None), ("*", None, None), ("*", '"1"', 412), ('"1"', '"1"', 412), ('"1"', '"2"', None)),
        *(('W/"1"', '"1"', 412), ('"1"', 'W/"1"', 412), ("1", None, 400)),
    ],
)
def test_if_none_match_compares_weakly(header: str | None, current: str | None, status: int | None) -> None:
    """`*` makes only what is not there."""
    unmet = if_none_match(header, current)
    assert (unmet and unmet.status) == status


def test_tags_are_strong_and_tell_contents_apart() -> None:
    """Of a number or of a representation; each can be sent back as it is."""
    tags = {etag(1), etag(2), etag("1"), etag(b"2"), etag("ä")}
    assert len(tags) == 5
    assert all(if_match(tag, tag) is None for tag in tags)
    assert etag("a") == etag(b"a")
    with pytest.raises(ConfigurationError):
        etag(True)


class Note:
    """A resource with versions, changed by PATCH if If-Match says so; for ASGI and WSGI."""

    def __init__(self) -> None:
        self.version = 1

    def change(self, header: str | None) -> tuple[int, bytes]:
        unmet = if_match(header, etag(self.version))
        if unmet is not None:
            return unmet.status, json.dumps(unmet.problem).encode()
        self.version += 1
        return 200, b"version %d" % self.version

    async def asgi(self, scope: Any, receive: Any, send: Any) -> None:
        found = dict(scope["headers"]).get(b"if-match")
        status, body = self.change(found.decode() if found is not None else None)
        for message in asgi_kit.answer(status, body, (b"etag", etag(self.version).encode())):
            await send(message)

    def wsgi(self, environ: Any, start_response: Any) -> list[bytes]:
        status, body = self.change(environ.get("HTTP_IF_MATCH"))
        start_response(f"{status} Done", [("ETag", etag(self.version))])
        return [body]


async def test_a_replay_wins_over_its_own_success() -> None:
    """The retry of a change that succeeded gets its first answer; under another key the old tag is 412, for good."""
    note = Note()
    guarded = asgi_kit.Guarded(note.asgi)

    async def patch(key: bytes) -> Any:
        scope = asgi_kit.http(key, method="PATCH")
        scope["headers"].append((b"if-match", b'"1"'))
        return await asgi_kit.call(guarded, scope)

    first, again = await patch(b"k"), await patch(b"k")
    assert (first.status, again.status, again.body, again[b"etag"]) == (200, 200, first.body, b'"2"')
    assert again[b"idempotency-replayed"] == b"true"
    assert [(await patch(b"other")).status for _ in range(2)] == [412, 412]
    assert note.version == 2
    await guarded.app.engine.close()


def test_a_replay_wins_under_wsgi_too() -> None:
    """The same rule."""
    note = Note()
    guarded = wsgi_kit.Guarded(note.wsgi)

    def patch(key: str) -> wsgi_kit.Answer:
        return wsgi_kit.call(guarded, wsgi_kit.post(key, REQUEST_METHOD="PATCH", HTTP_IF_MATCH='"1"'))

    first, again = patch("k"), patch("k")
    assert (first.status, again.status, again.body, again["etag"]) == (200, 200, first.body, '"2"')
    assert [patch("other").status for _ in range(2)] == [412, 412]
    assert note.version == 2
    guarded.app.shutdown()


async def test_a_handler_may_be_decorated() -> None:
    """Plain or awaited: it runs if the condition is true, and is declined with what to answer otherwise."""
    ran: list[int] = []
    version = {7: '"1"'}

    async def current(number: int, tag: str | None) -> str | None:
        return version.get(number)

    @conditional(current=lambda number, tag: version.get(number), header=lambda number, tag: tag)
    def change(number: int, tag: str | None) -> int:
        ran.append(number)
        return number

    @conditional(current=current, header=lambda number, tag: tag)
    async def change_async(number: int, tag: str | None) -> int:
        return change(number, tag)  # type: ignore[no-any-return]

    assert (change(7, '"1"'), await change_async(7, "*")) == (7, 7)
    for number, tag, status in ((7, '"0"', 412), (7, None, 428), (8, "*", 412)):
        with pytest.raises(Declined) as declined:
            change(number, tag)
        assert (declined.value.status, declined.value.answer["status"]) == (status, status)
        with pytest.raises(Declined):
            await change_async(number, tag)
    assert ran == [7, 7]
