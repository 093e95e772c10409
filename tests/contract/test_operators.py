"""What an operator does by hand, on every store: it is signed in the same write, and the signature stays."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from oncekey.core.decision import Execute, Replay
from oncekey.core.journal import Call, Journal
from oncekey.core.outcome import Answer, sign, unpack
from oncekey.core.record import Seen, State
from oncekey.engine.journals import journal_of, read_sealed, sealed, trail
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError
from oncekey.operations import Desk, Signature, dead_letters, history, listing, queue
from oncekey.testing import Bench
from oncekey.testing.bench import another_request
from tests.contract.stores import SHARED, Subject

ANN = Signature("ann", "the bank's books say so, ticket 7")
BEN = Signature("ben", "cancelled at the bank, ticket 8")
PAID = Answer(201, ((b"content-type", b"application/json"),), b'{"id":1}')
CALLED = Call("psp.charge", "k" * 36)
SEALER = Sealer()
WHERE = pytest.mark.parametrize(("store", "colour"), [pytest.param("memory", "sync", id="memory"), *SHARED])


def unknown(bench: Bench) -> Seen:
    """An unknown outcome of an attempt that has called somebody."""
    claim = bench.won()
    bench.settle(claim, State.UNKNOWN, outcome=sealed(claim.id, Journal((CALLED,)), SEALER), keep_for=None, due_for=1)
    return bench.seen(claim.id)


@WHERE
def test_an_override_is_replayed_and_signed(subject: Subject) -> None:
    """Retries get the operator's answer, and the record says who, why, when, from where to where."""
    bench = subject.bench()
    seen = unknown(bench)
    change = Desk(bench.store, SEALER).complete(seen, PAID, ANN)
    assert change.written
    record = bench.record(seen.record.id)
    assert (record.state, record.token) == (State.COMPLETED, b"")
    assert record.version == seen.record.version + 1
    assert unpack(SEALER.open(record.id, record.outcome)) == PAID
    [line] = history(record)
    assert line == (ANN.by, ANN.why, seen.now, State.UNKNOWN, State.COMPLETED)
    assert record.note == f"{ANN.by}: {ANN.why}"
    bench.close()


@WHERE
def test_the_trail_outlives_the_retry_that_it_allowed(subject: Subject) -> None:
    """Freed by hand, run again and completed by its owner: the record still tells by whom it was freed."""
    bench = subject.bench()
    seen = unknown(bench)
    assert Desk(bench.store, SEALER).retryable(seen, BEN).written
    freed = bench.record(seen.record.id)
    assert freed.state is State.FAILED_RETRYABLE
    assert journal_of(freed, SEALER).calls == (CALLED,)
    again = another_request(bench.won())._replace(id=freed.id)
    decision = bench.enter(again)
    assert isinstance(decision, Execute)
    outcome = sign(b"\x12done", read_sealed(freed.id, decision.journal, SEALER).trail)
    bench.settle(again, outcome=SEALER.seal(freed.id, outcome))
    done = bench.record(freed.id)
    assert [line.by for line in trail(done, SEALER)] == ["ben"]
    assert isinstance(bench.enter(another_request(again)), Replay)
    bench.close()


@WHERE
def test_who_comes_second_changes_nothing(subject: Subject) -> None:
    """Of two people who saw the same record one decides, and the other is told; a rehearsal changes nothing."""
    bench = subject.bench()
    seen = unknown(bench)
    rehearsed = Desk(bench.store, SEALER, rehearse=True).complete(seen, PAID, ANN)
    assert (rehearsed.written, rehearsed.moved_on) == (False, False)
    assert bench.record(seen.record.id) == seen.record
    first = Desk(bench.store, SEALER).complete(seen, PAID, ANN)
    second = Desk(bench.store, SEALER).retryable(seen, BEN)
    assert (first.moved_on, second.moved_on) == (False, True)
    assert [line.by for line in history(bench.record(seen.record.id))] == ["ann"]
    bench.close()


@WHERE
def test_a_dead_letter_is_listed_and_can_be_asked_about_again(subject: Subject) -> None:
    """Without a time it is listed apart; asked about again it is due, and its owner keeps its proof."""
    bench = subject.bench()
    claim = bench.won()
    bench.settle(claim, State.UNKNOWN, outcome=b"", keep_for=None)
    asked_about = unknown(bench)
    listed = dead_letters(bench.store, limit=10_000).records
    assert claim.id in {record.id for record in listed}
    assert asked_about.record.id not in {record.id for record in listed}
    seen = bench.seen(claim.id)
    assert Desk(bench.store, SEALER).ask_again(seen, ANN).written
    record = bench.record(claim.id)
    assert (record.state, record.token, record.due_at) == (State.UNKNOWN, claim.token, seen.now)
    assert [line.target for line in history(record)] == [State.UNKNOWN]
    bench.close()


@WHERE
def test_a_cursor_that_no_page_gave_is_no_fault(subject: Subject) -> None:
    """Words are told as such; numbers that are too large too, or they lead nowhere: nothing else is raised."""
    bench = subject.bench()
    unknown(bench)
    beyond = str(1 << 64)
    for lists in (queue, dead_letters, listing, partial(listing, state="all")):
        for after in (f"{beyond}:00", f"1:{beyond}", "1_0:00", "\u0661:00", f"2:{beyond * 99}:zz", "2:nan:00", ":"):
            with suppress(ConfigurationError):
                lists(bench.store, after=after)
        with pytest.raises(ConfigurationError, match="no cursor of this listing"):
            lists(bench.store, after="odd")
    bench.close()
