from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from oncekey import Policy
from tests.adapters.wsgi_kit import Guarded, Shop, call, post

CHUNKED = {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": ""}
ENDED = {"wsgi.input_terminated": True}


class Drip(io.BytesIO):
    """A body that arrives in small pieces, whatever is asked for."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(3, size) if size and size > 0 else 3)


@pytest.mark.parametrize("stream", [io.BytesIO, Drip])
@pytest.mark.parametrize("how", [{}, CHUNKED | ENDED])
def test_the_application_gets_the_body_that_was_sent(stream: Any, how: dict[str, Any]) -> None:
    """By length or by chunks, in one piece or in many: whole, with its length, and to be read to its end."""
    shop, body = Shop(), b"one two three"
    changes: dict[str, Any] = {"wsgi.input": stream(body), **how}
    assert call(Guarded(shop), post("k", body, **changes)).status == 201
    assert shop.effects == [body]
    seen = shop.environs[0]
    assert (seen["CONTENT_LENGTH"], seen["wsgi.input_terminated"]) == ("13", True)
    assert "HTTP_TRANSFER_ENCODING" not in seen


def test_of_a_longer_stream_only_the_declared_length_is_read() -> None:
    """What follows on the connection is the next request's."""
    shop, stream = Shop(), io.BytesIO(b"first second")
    changes: dict[str, Any] = {"CONTENT_LENGTH": "5", "wsgi.input": stream}
    call(Guarded(shop), post(**changes))
    assert (shop.effects, stream.read()) == ([b"first"], b" second")


@pytest.mark.parametrize("how", [{"CONTENT_LENGTH": ""}, {"CONTENT_LENGTH": None}, {"SERVER_PROTOCOL": "HTTP/1.0"}])
def test_no_length_and_no_chunks_is_no_body(how: dict[str, Any]) -> None:
    """HTTP/1 says so; the stream is not even asked, because it might never end."""
    shop, environ = Shop(), post(**how | {"wsgi.input": None})
    if environ["CONTENT_LENGTH"] is None or "SERVER_PROTOCOL" in how:
        del environ["CONTENT_LENGTH"]
    assert call(Guarded(shop), environ).status == 201
    assert shop.effects == [b""]


@pytest.mark.parametrize("sent", [0, 1, 12])
def test_a_truncated_upload_is_never_executed(sent: int) -> None:
    """The stream ends before the declared length: no claim, no effect, and who still listens is told."""
    shop = Shop()
    guarded = Guarded(shop)
    changes: dict[str, Any] = {"CONTENT_LENGTH": "13", "wsgi.input": io.BytesIO(b"one two three"[:sent])}
    refused = call(guarded, post(**changes))
    assert (refused.status, json.loads(refused.body)["type"].rsplit("/", 1)[1]) == (400, "body-incomplete")
    assert (shop.effects, guarded.records) == ([], [])


def test_what_the_server_raises_while_reading_goes_back_to_it() -> None:
    """A broken connection or chunk is the server's to handle: no claim, no effect, no answer of ours."""

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError("peer")

    shop = Shop()
    guarded = Guarded(shop)
    changes: dict[str, Any] = {"wsgi.input": Broken()}
    with pytest.raises(ConnectionResetError):
        call(guarded, post(**changes))
    assert (shop.effects, guarded.records) == ([], [])


@pytest.mark.parametrize(("protocol", "how"), [("HTTP/1.1", CHUNKED), ("HTTP/2", {"CONTENT_LENGTH": ""})])
def test_a_body_whose_end_nobody_tells_is_refused(protocol: str, how: dict[str, Any]) -> None:
    """411 where the server neither gives a length nor ends the stream."""
    shop = Shop()
    changes: dict[str, Any] = {"SERVER_PROTOCOL": protocol, **how}
    refused = call(Guarded(shop), post(**changes))
    assert (refused.status, shop.effects) == (411, [])
    assert "Content-Length" in json.loads(refused.body)["detail"]


def test_a_server_that_ends_its_stream_needs_no_length() -> None:
    """HTTP/2 has neither length nor chunks of necessity."""
    shop = Shop()
    changes: dict[str, Any] = {"SERVER_PROTOCOL": "HTTP/2", "CONTENT_LENGTH": "", **ENDED}
    assert call(Guarded(shop), post(**changes)).status == 201
    assert shop.effects == [b'{"a":1}']


@pytest.mark.parametrize("length", ["x", "-1", "1.5", "\u0663", "+3"])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    """400: such a request could be read in two ways."""
    shop = Shop()
    assert call(Guarded(shop), post(CONTENT_LENGTH=length)).status == 400
    assert shop.effects == []


def test_an_endless_declared_length_is_no_fault_of_ours() -> None:
    """More digits than Python reads are a body over the cap; zeros in front are none."""
    assert call(Guarded(Shop()), post(CONTENT_LENGTH="9" * 5000)).status == 413
    shop = Shop()
    assert call(Guarded(shop), post(CONTENT_LENGTH="0" * 5000 + "13")).status == 400
    assert shop.effects == []


@pytest.mark.parametrize("how", [{"CONTENT_LENGTH": "11"}, CHUNKED | ENDED])
def test_a_body_over_the_cap_is_refused(how: dict[str, Any]) -> None:
    """413, by the declared length before reading and by counting while reading; the cap itself is allowed."""
    shop = Shop()
    guarded = Guarded(shop, policy=Policy(max_body=10))
    changes: dict[str, Any] = {**how, "wsgi.input": Drip(b"0123456789a")}
    assert call(guarded, post(**changes)).status == 413
    assert (shop.effects, guarded.records) == ([], [])
    assert call(guarded, post(body=b"0123456789")).status == 201


def test_a_slow_upload_holds_no_claim() -> None:
    """While the body drips nothing is claimed."""
    held = []

    class Slow(Drip):
        def read(self, size: int | None = -1, /) -> bytes:
            held.append(list(guarded.records))
            return super().read(size)

    guarded = Guarded(Shop())
    changes: dict[str, Any] = {"wsgi.input": Slow(b'{"a":1}')}
    assert call(guarded, post(**changes)).status == 201
    assert held == [[], [], []]


def test_a_key_in_the_body_is_found_there_and_the_body_is_still_there() -> None:
    """A dialect may carry its key in the body; without one, where none is required, the application reads it itself."""
    shop = Shop()
    guarded = Guarded(shop, dialect="aws")
    keyed, bare = b'{"ClientToken":"t1"}', b'{"a":1}'
    assert [call(guarded, post(None, body)).body for body in (keyed, keyed, bare, bare)] == [
        b'{"n":1}',
        b'{"n":1}',
        b'{"n":2}',
        b'{"n":3}',
    ]
    assert shop.effects == [keyed, bare, bare]
    assert "wsgi.file_wrapper" in shop.environs[1]


def test_a_refusal_leaves_the_body_unread() -> None:
    """A request without a key is answered before its upload: reading on is the server's choice."""
    changes: dict[str, Any] = {"wsgi.input": None}
    assert call(Guarded(Shop()), post(None, **changes)).status == 400


def test_a_body_is_given_in_lines_too() -> None:
    """All ways of reading that WSGI promises work on what the application gets."""
    read: list[Any] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        stream = environ["wsgi.input"]
        read.extend((stream.readline(), list(stream), stream.read(1), stream.readlines()))
        start_response("201 Created", [])
        yield b""

    assert call(Guarded(app), post(body=b"a\nb\nc")).status == 201
    assert read == [b"a\n", [b"b\n", b"c"], b"", []]
