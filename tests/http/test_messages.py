"""A request as every gateway hands it over."""

from __future__ import annotations

from oncekey.http.messages import Request


def request(*headers: tuple[bytes, bytes]) -> Request:
    return Request("POST", "/pay", b"", list(headers), b"")


def test_names_are_in_lower_case_however_they_came() -> None:
    """Servers give them so, and code of one's own need not."""
    asked = request((b"host", b"A"), (b"Content-TYPE", b"Text/Plain"))
    assert asked.headers == [(b"host", b"A"), (b"content-type", b"Text/Plain")]
    assert asked.header(b"content-type") == b"Text/Plain"


def test_repeated_lines_stay_apart_or_are_joined() -> None:
    """Beside them and alone a header reads the same."""
    for asked in (request((b"a", b"1"), (b"b", b"2"), (b"A", b"3")), request((b"b", b"2"))):
        assert (asked.lines(b"b"), asked.header(b"b")) == ([b"2"], b"2")
        assert (asked.lines(b"c"), asked.header(b"c")) == ([], b"")
    asked = request((b"a", b"1"), (b"b", b"2"), (b"A", b"3"))
    assert (asked.lines(b"a"), asked.header(b"a")) == ([b"1", b"3"], b"1, 3")


def test_a_request_may_have_no_headers() -> None:
    """Then it has none by any name."""
    assert request().header(b"host") == b""
