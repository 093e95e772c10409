from __future__ import annotations

import contextlib
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.outcome import STATIC, Answer, Tombstone, Value, pack, pack_value, tombstone, unpack
from oncekey.errors import RecordUnreadable

SMALL = [(b"content-type", b"application/json"), (b"content-length", b"90")]
KNOWN = st.sampled_from([(name, value or b"some value") for name, value in STATIC])
ANY = st.tuples(st.binary(max_size=200), st.binary(max_size=300))


@given(st.integers(0, 999), st.lists(KNOWN | ANY, max_size=12), st.binary(max_size=600))
def test_every_answer_comes_back_as_it_was(status: int, headers: list, body: bytes) -> None:
    """Status, order, duplicates, spelling of names, values and body survive byte for byte."""
    assert unpack(pack(status, headers, body)) == Answer(status, tuple(headers), body)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 16_383, 16_384, 2_100_000])
def test_bodies_and_values_of_every_length_come_back(length: int) -> None:
    """Lengths are written in as many bytes as they need."""
    answer = Answer(200, ((b"x-long", b"v" * length),), b"b" * length)
    assert unpack(pack(*answer)) == answer


@pytest.mark.parametrize("value", [b"90", b"090", b"91", b"9", b" 90", b""])
@pytest.mark.parametrize("name", [b"content-length", b"Content-Length", b"CONTENT-LENGTH"])
def test_a_content_length_is_derived_only_if_it_is_the_true_one(name: bytes, value: bytes) -> None:
    """What the application wrote is what comes back, even where it is wrong."""
    assert unpack(pack(200, [(name, value)], b"x" * 90)) == Answer(200, ((name, value),), b"x" * 90)


def test_a_small_json_answer_costs_seven_bytes_beside_its_body() -> None:
    """Format, status, count, one byte for the type, two for the true length, one for the body's length."""
    assert len(pack(201, SMALL, b"x" * 90)) == 90 + 7


def test_bytes_written_by_the_first_version_still_mean_the_same() -> None:
    """The table of headers is append-only: these bytes may never read differently."""
    written = bytes.fromhex("10410502010012022f610005782d6f6e65013122026f6b")
    headers = ((b"content-type", b"application/json"), (b"content-length", b"2"), (b"location", b"/a"))
    assert unpack(written) == Answer(201, (*headers, (b"x-one", b"1"), (b"vary", b"Accept")), b"ok")
    assert len(STATIC) >= 65
    assert hashlib.sha256(repr(STATIC[:65]).encode()).hexdigest()[:16] == "3d3e1ce72ada48a6"


def test_a_tombstone_keeps_status_and_reason() -> None:
    """An answer that was not kept leaves what is needed to say so."""
    assert unpack(tombstone(201, "it was a stream")) == Tombstone(201, "it was a stream")
    assert unpack(tombstone(451, "zu groß")) == Tombstone(451, "zu groß")


def test_a_value_keeps_its_bytes() -> None:
    """What a function returned is kept as the bytes that it was turned into."""
    assert unpack(pack_value(b"\x00\xff")) == Value(b"\x00\xff")


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x13abc", b"\x20\x40", b"\xff"])
def test_another_format_is_refused(data: bytes) -> None:
    """What this code does not know is never guessed at."""
    with pytest.raises(RecordUnreadable):
        unpack(data)


def test_a_line_of_a_newer_table_is_refused() -> None:
    """A header code beyond the table means that a newer version wrote it."""
    with pytest.raises(RecordUnreadable):
        unpack(b"\x10\x40\x01" + bytes((len(STATIC) + 2,)) + b"\x00")


def test_no_cut_of_an_answer_reads_as_an_answer() -> None:
    """A store that truncates silently cannot make us replay half of a body."""
    packed = pack(200, [*SMALL, (b"x-one", b"1")], b"x" * 90)
    for end in range(len(packed)):
        with pytest.raises(RecordUnreadable):
            unpack(packed[:end])
    with pytest.raises(RecordUnreadable):
        unpack(packed + b"x")


@given(
    st.binary(max_size=80).map(lambda tail: b"\x10" + tail) | st.binary(max_size=80).map(lambda tail: b"\x11" + tail)
)
def test_damaged_bytes_raise_nothing_but_record_unreadable(data: bytes) -> None:
    """Whatever stands in the store, the error is ours."""
    with contextlib.suppress(RecordUnreadable):
        unpack(data)
