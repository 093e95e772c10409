from __future__ import annotations

import logging

import pytest

from oncekey.core.commands import Claim
from oncekey.core.decision import Replay
from oncekey.core.flows import Terms, enter
from oncekey.core.outcome import Tombstone, unpack
from oncekey.core.record import State
from oncekey.engine.sealing import Sealer
from oncekey.errors import ConfigurationError
from oncekey.http.answer import answer
from oncekey.http.dialects import IETF
from oncekey.operations import Desk, EraseReport, Signature, checked_digest, digest_of, erase, history
from oncekey.stores.contract import Store
from oncekey.stores.memory import MemoryStore
from oncekey.stores.open import open_store
from oncekey.testing.bench import Exactly, another_request, drive
from tests.operations.every_store import KINDS, PLAIN, RING, answered, body_of, ended, opened, record_of, taken, url_of

ANN = Signature("ann", "asked for by the customer, ticket 7")


def whole(desk: Desk, caller: str = "alice") -> EraseReport:
    """Erase all of a caller's, without resting."""
    return erase(desk, digest_of(caller), ANN, rest=lambda seconds: None)


def replayed(store: Store, claim: Claim) -> Replay:
    """What a retry is given."""
    terms = Terms(keep_for=1, reconcile_after_for=1)
    decision = drive(store, enter(another_request(claim), Exactly(claim.fingerprint), terms))
    assert isinstance(decision, Replay)
    return decision


@pytest.mark.parametrize("sealer", [PLAIN, RING], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", KINDS)
def test_answers_of_one_caller_are_erased(kind: str, sealer: Sealer, request: pytest.FixtureRequest) -> None:
    """Bodies go, keys, statuses and expiries stay, others' answers are untouched, and each record says who and why."""
    with opened(kind, request) as store:
        mine = [answered(store, "alice", f"a{n}", sealer) for n in range(3)]
        theirs = answered(store, "bob", "b", sealer)
        before = [record_of(store, claim.id) for claim in (*mine, theirs)]
        report = whole(Desk(store, sealer))
        assert (report.erased, report.looked, report.whole) == (3, 4, True)
        for claim, old in zip(mine, before, strict=False):
            record = record_of(store, claim.id)
            stone = unpack(sealer.open(claim.id, record.outcome))
            assert stone == Tombstone(201, "it was erased on request")
            assert (record.state, record.expires_at) == (State.COMPLETED, old.expires_at)
            [line] = history(record, sealer)
            assert (line.by, line.why, line.source, line.target) == (*ANN, State.COMPLETED, State.COMPLETED)
        assert record_of(store, theirs.id) == before[-1]
        again = whole(Desk(store, sealer))
        assert (again.erased, again.nothing) == (0, 3)


def test_a_retry_is_told_that_its_answer_was_erased(store: MemoryStore) -> None:
    """It is not run again, and the problem says that it was carried out, with which status, and what became of it."""
    claim = answered(store, "alice", "k")
    whole(Desk(store, PLAIN))
    decision = replayed(store, claim)
    opened_record = decision.record._replace(outcome=PLAIN.open(claim.id, decision.record.outcome))
    reply = answer(IETF, decision.__class__(opened_record))
    assert b"status 201" in reply.body
    assert b"it was erased on request" in reply.body
    assert b"alice" not in reply.body


def test_a_rehearsal_erases_nothing(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    """It counts what would go; store and audit log are as they were."""
    claim = answered(store, "alice", "k")
    with caplog.at_level(logging.INFO, "oncekey.audit"):
        report = whole(Desk(store, PLAIN, rehearse=True))
    assert (report.erased, report.rehearsed, caplog.messages) == (1, True, [])
    assert body_of(store, claim) == b"alice k"


def test_what_is_not_finished_is_left_and_said(store: MemoryStore) -> None:
    """Its journal is needed to find out about it, and its answer is still to come."""
    taken(store, "alice", "running")
    unknown = ended(store, taken(store, "alice", "unknown"), State.UNKNOWN, outcome=PLAIN.seal(b"x", b"\x13\x00"))
    ended(store, taken(store, "alice", "failed"), State.FAILED_RETRYABLE)
    before = record_of(store, unknown.id)
    report = whole(Desk(store, PLAIN))
    assert (report.unfinished, report.nothing, report.erased, report.whole) == (2, 1, 0, False)
    assert record_of(store, unknown.id) == before


def test_without_the_ring_an_encrypted_answer_is_left_and_said(store: MemoryStore) -> None:
    """Its status and its trail would be lost: it is counted as unreadable, and nothing is written."""
    claim = answered(store, "alice", "k", RING)
    report = whole(Desk(store, PLAIN))
    assert (report.unreadable, report.erased, report.whole) == (1, 0, False)
    assert body_of(store, claim, RING) == b"alice k"


def test_one_operation_is_erased_and_an_unfinished_one_refused(store: MemoryStore) -> None:
    """By hand one at a time; what has no answer yet is answered with a sentence."""
    claim, running = answered(store, "alice", "k"), taken(store, "alice", "running")
    seen, open_ = store.get(claim.id), store.get(running.id)
    assert seen is not None
    assert open_ is not None
    assert Desk(store, PLAIN).erase(seen, ANN).written
    assert "erased" in str(body_of(store, claim))
    with pytest.raises(ConfigurationError, match="only a finished one"):
        Desk(store, PLAIN).erase(open_, ANN)


def test_a_redis_that_forgets_scopes_is_said(request: pytest.FixtureRequest) -> None:
    """Without scopes=keep finished records do not say whose they are: they are counted, and the work is not whole."""
    store = open_store(url_of("redis", request).replace("?scopes=keep", ""))
    answered(store, "alice", "k")
    report = whole(Desk(store, PLAIN))
    store.close()
    assert (report.nameless, report.erased, report.whole) == (1, 0, False)


def test_it_stops_between_pages(store: MemoryStore) -> None:
    """Whoever is asked to stop ends after the page at hand, and is not finished."""
    for number in range(3):
        answered(store, "alice", str(number))
    asked = iter([False, True])
    report = erase(Desk(store, PLAIN), digest_of("alice"), ANN, stop=lambda: next(asked), rest=lambda seconds: None)
    assert report.finished  # all fit into the first page
    report = erase(Desk(store, PLAIN), digest_of("alice"), ANN, stop=lambda: True)
    assert not report.finished


@pytest.mark.parametrize("digest", ["", "abc", "95DF77A02373", "95df77a0237", "95df77a0237x"])
def test_a_digest_that_is_none_is_a_sentence(digest: str) -> None:
    """A typo must not pass for a caller without records."""
    with pytest.raises(ConfigurationError, match="--scope"):
        checked_digest(digest)
