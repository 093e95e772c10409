"""Records as bytes: they come back as they went in, and what is damaged, foreign or newer is refused, never absent."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.record import FORMAT, HEAD, Guarantee, Label, Record, State, decode, encode, replace
from oncekey.errors import RecordForged, RecordUnreadable

ID = bytes(range(20))
times = st.none() | st.integers(1, 2**63)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
tokens = st.just(b"") | st.binary(min_size=16, max_size=16).filter(any)
records = st.builds(
    Record,
    id=st.binary(min_size=8, max_size=40),
    state=st.sampled_from(State),
    version=st.integers(1, 2**32 - 1),
    token=tokens,
    fingerprint=st.binary(max_size=255),
    guarantee=st.sampled_from(Guarantee),
    attempts=st.integers(1, 0xFFFF),
    claimed_at=st.integers(0, 2**63),
    lease_until=times,
    due_at=times,
    expires_at=times,
    waited=st.booleans(),
    label=st.builds(Label, texts, texts, texts),
    note=texts,
    outcome=st.binary(max_size=2_000),
)
RECORD = Record(
    ID,
    State.COMPLETED,
    7,
    b"t" * 16,
    b"print",
    label=Label("tenant", "POST /ö", "key"),
    note="näher",
    outcome=b"\x00\xff",
)
DATA = encode(RECORD)


@given(record=records)
def test_a_record_comes_back_as_it_went_in(record: Record) -> None:
    """Every field survives the way through bytes."""
    assert decode(record.id, encode(record)) == record


@pytest.mark.parametrize("size", [0, 1, 200_000])
def test_outcomes_of_any_size(size: int) -> None:
    """Outcomes are bytes of any length."""
    record = replace(RECORD, outcome=b"\x00\x80\xff" * size)
    assert decode(ID, encode(record)) == record


@pytest.mark.parametrize("format_", [0, FORMAT + 1, 255])
def test_another_version_is_refused(format_: int) -> None:
    """A record of a version that this code does not know is refused by name, never read and never absent."""
    with pytest.raises(RecordUnreadable, match=f"format {format_} is not known"):
        decode(ID, bytes([format_]) + DATA[1:])


@pytest.mark.parametrize("length", range(len(DATA)))
def test_a_cut_record_is_refused(length: int) -> None:
    """A record that was cut anywhere is refused."""
    with pytest.raises(RecordUnreadable):
        decode(ID, DATA[:length])


def test_a_longer_record_is_refused() -> None:
    """Bytes behind the end are damage as well."""
    with pytest.raises(RecordUnreadable, match="damaged"):
        decode(ID, DATA + b"\x00")


@pytest.mark.parametrize(("place", "value"), [(1, 0), (1, 7), (3, 0), (3, 4)])
def test_an_unknown_state_or_guarantee_is_refused(place: int, value: int) -> None:
    """A state or guarantee that this code does not know is damage."""
    with pytest.raises(RecordUnreadable, match="damaged"):
        decode(ID, DATA[:place] + bytes([value]) + DATA[place + 1 :])


def test_a_record_of_another_key_is_refused() -> None:
    """A record that was stored under another id is never taken for this one's."""
    with pytest.raises(RecordForged):
        decode(b"another key entirely", DATA)


@given(data=st.binary(max_size=300))
def test_any_bytes_are_refused_in_words(data: bytes) -> None:
    """Whatever bytes a store holds, reading them raises nothing but the two errors for it."""
    with contextlib.suppress(RecordUnreadable, RecordForged):
        decode(ID, data)
    with contextlib.suppress(RecordUnreadable, RecordForged):
        decode(ID, bytes([FORMAT]) + data)


@given(place=st.integers(0, len(DATA) - 1), value=st.integers(0, 255))
def test_one_wrong_byte_is_refused_or_harmless(place: int, value: int) -> None:
    """One changed byte anywhere is refused, or read as a record of this key; nothing else is raised."""
    with contextlib.suppress(RecordUnreadable, RecordForged):
        assert decode(ID, DATA[:place] + bytes([value]) + DATA[place + 1 :]).id == ID


def test_texts_are_cut_and_never_refused() -> None:
    """Labels and notes are for reading: text that is too long, or no text at all, does not keep a record out."""
    odd = Label("s" * 300, "ö" * 70_000, "\ud800\x00")
    record = decode(ID, encode(replace(RECORD, label=odd, note="ä" * 5_000)))
    assert (record.outcome, record.token, record.state) == (RECORD.outcome, RECORD.token, RECORD.state)
    assert record.label.scope == "s" * 255
    assert record.label.endpoint.startswith("ö" * 499)
    assert record.note.startswith("ä" * 499)


def test_attempts_stop_counting_at_the_end_of_their_field() -> None:
    """A count that no longer fits stays at its largest value: it never starts again at zero."""
    assert decode(ID, encode(replace(RECORD, attempts=70_000))).attempts == 0xFFFF


def test_a_finished_record_is_small() -> None:
    """The head of a record takes 78 bytes; the rest is what was put in."""
    assert HEAD.size == 78
    assert len(DATA) == HEAD.size + len(b"print") + len("tenantPOST /ökeynäher".encode()) + 2
