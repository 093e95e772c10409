"""The journal's bytes: what goes in comes out, what is not known or damaged is refused, what is too large is said."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.journal import (
    EMPTY,
    LARGEST,
    LARGEST_TRAIL,
    Asked,
    Audit,
    Call,
    CallState,
    Form,
    Journal,
    Step,
    Trace,
    pack_journal,
    read_journal,
)
from oncekey.core.outcome import Answer, Tombstone, Value, pack, pack_value, sign, tombstone, trail_of, unpack
from oncekey.core.record import State
from oncekey.errors import JournalFull, RecordUnreadable

TEXTS = st.text(max_size=60) | st.sampled_from(["\ud800", "psp.charge", "POST https://psp.example/charges"])
CALLS = st.builds(Call, TEXTS, TEXTS, TEXTS, st.sampled_from(CallState), st.integers(1, 70_000), TEXTS, TEXTS, TEXTS)
STEPS = st.builds(Step, TEXTS, st.binary(max_size=300), st.sampled_from(Form), st.binary(max_size=32))
AUDITS = st.builds(Audit, TEXTS, TEXTS, st.integers(0, 2**48), st.sampled_from(State), st.sampled_from(State))
ASKED = st.builds(Asked, st.integers(0, 70_000), st.integers(0, 2**48), TEXTS)
TRACES = st.builds(Trace, st.binary(max_size=40))
ANN = Audit("ann", "why", 1, State.UNKNOWN, State.COMPLETED)
CHARGE = Call("psp.charge", "k" * 36, "POST https://psp.example/charges")


@given(st.lists(CALLS | STEPS | AUDITS | ASKED | TRACES, min_size=1, max_size=8))
def test_every_journal_comes_back_as_it_was(entries: list) -> None:
    """Order, names in any language, states and results survive; it is read as an outcome of its own kind."""
    journal = Journal(tuple(entries))
    assert read_journal(pack_journal(journal)) == journal
    assert unpack(pack_journal(journal)) == journal


def test_bytes_written_by_the_first_version_still_mean_the_same() -> None:
    """These bytes may never read differently."""
    written = pack_journal(Journal((Call("pay", "k" * 36, "POST /x", CallState.RETURNED, 2, "outer"),)))
    assert written == b"\x13\x01\x01\x02\x02\x03pay\x24" + b"k" * 36 + b"\x07POST /x\x05outer"
    assert pack_journal(Journal((Step("outer", b"a|b", Form.BYTES),))) == b"\x13\x01\x02\x01\x05outer\x03a|b"
    longer = Call("pay", "k" * 36, "POST /x", CallState.RETURNED, 2, "outer", "stripe", "ch_1")
    assert pack_journal(Journal((longer,))) == b"\x13\x01\x05" + written[3:] + b"\x06stripe\x04ch_1"
    given = pack_journal(Journal((Step("outer", b"a|b", Form.BYTES, b"d"),)))
    assert given == b"\x13\x01\x06\x01\x05outer\x03a|b\x01d"
    assert pack_journal(Journal((ANN,))) == b"\x13\x01\x03\x05\x03" + bytes(7) + b"\x01\x03ann\x03why"
    assert pack_journal(Journal((Asked(3, 2, "no"),))) == b"\x13\x01\x04\x03" + bytes(7) + b"\x02\x02no"
    assert pack_journal(Journal((Trace(b"abc"),))) == b"\x13\x01\x07\x03abc"
    assert sign(b"\x12x", [ANN]) == b"\x14\x15" + pack_journal(Journal((ANN,))) + b"\x12x"


def test_no_journal_is_no_bytes() -> None:
    """An operation that has called nobody costs nothing."""
    assert pack_journal(EMPTY) == b""
    assert read_journal(b"") == EMPTY


def test_an_answer_is_not_read_as_a_journal() -> None:
    """Where a journal should be, an answer is refused and not guessed at."""
    with pytest.raises(RecordUnreadable, match="no journal"):
        read_journal(pack(200, [], b""))


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_damaged_journal_is_refused(cut: int) -> None:
    """A journal that ends too early, or has an entry of a later version, is never read in part."""
    whole = pack_journal(Journal((CHARGE, Step("s", b"result"))))
    for damaged in (whole[:-cut], whole + bytes(cut), b"\x13\x01" + bytes([cut + 2]) + whole[3:]):
        with pytest.raises(RecordUnreadable):
            read_journal(damaged)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_journal_or_refused(data: bytes) -> None:
    """Garbage raises what a store's trouble raises, and nothing else."""
    with contextlib.suppress(RecordUnreadable):
        read_journal(b"\x13" + data)


def test_a_journal_that_is_too_large_says_what_to_do() -> None:
    """The limit is named with the entry that broke it, and what to do instead."""
    with pytest.raises(JournalFull, match=r"'report'.*65536.*reference"):
        pack_journal(Journal((CHARGE, Step("report", bytes(LARGEST)))))


def test_an_entry_takes_the_place_of_the_one_with_its_name() -> None:
    """A call and a step may share a name; two calls may not."""
    journal = EMPTY.having(CHARGE).having(Step("psp.charge", b"1"))
    again = journal.having(CHARGE._replace(attempt=2))
    assert [type(entry) for entry in again.entries] == [Call, Step]
    assert again.call("psp.charge") == CHARGE._replace(attempt=2)
    assert again.step("psp.charge") == Step("psp.charge", b"1")
    assert again.call("other") is None
    assert again.step("other") is None


def test_open_calls_are_those_that_a_new_run_would_repeat() -> None:
    """Declined and unsent calls are done with, and so is what happened within a step whose result is kept."""
    states = [Call(state.name, "k", state=state) for state in CallState]
    inside = Call("inside", "k", within="kept")
    outside = Call("outside", "k", within="lost")
    journal = Journal((*states, inside, outside, Step("kept", b"")))
    assert [call.step for call in journal.open_calls] == ["BEGUN", "RETURNED", "outside"]


def test_the_trail_has_room_of_its_own() -> None:
    """A handler's results leave room to sign; what does not fit is refused with what to do, and nothing is dropped."""
    full = Journal((Step("report", bytes(LARGEST - 100)),)).signed(ANN)
    assert read_journal(pack_journal(full)).trail == (ANN,)
    with pytest.raises(JournalFull, match="shorter reason"):
        pack_journal(full.signed(ANN._replace(why="x" * LARGEST_TRAIL)))


def test_the_reconcilers_entry_is_one() -> None:
    """Each try takes the place of the one before; asked as if for the first time, there is none."""
    journal = Journal((CHARGE,)).asking(Asked(1, 5)).signed(ANN).asking(Asked(2, 5, "later"))
    assert journal.asked == Asked(2, 5, "later")
    assert len(journal.entries) == 3
    assert journal.asking(None) == Journal((CHARGE, ANN))


@pytest.mark.parametrize("data", [pack(200, [], b"x"), tombstone(200, "long"), pack_value(b"v")])
def test_a_signed_outcome_is_read_like_any(data: bytes) -> None:
    """The trail stands in front of an outcome and changes nothing of it."""
    signed = sign(data, [ANN, ANN])
    assert unpack(signed) == unpack(data)
    assert isinstance(unpack(signed), Answer | Tombstone | Value)
    assert (trail_of(signed), trail_of(data)) == ((ANN, ANN), ())
    assert trail_of(pack_journal(Journal((CHARGE, ANN)))) == (ANN,)
    for damaged in (signed[:9], sign(signed, [ANN])):
        with pytest.raises(RecordUnreadable):
            unpack(damaged)
