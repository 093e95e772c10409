"""Settling by hand: rehearsed, confirmed, signed; and refused where it says nothing or comes too late."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oncekey.core.commands import Swap
from oncekey.core.outcome import Answer, Tombstone
from oncekey.core.record import Record, State, replace
from oncekey.engine.sealing import Sealer
from oncekey.operations import Desk, Signature, history, kept
from oncekey.stores.memory import MemoryStore
from oncekey.testing.clock import ManualClock
from tests.console.kit import Visitor, hidden, let_in, words
from tests.operations.filled import Made, claim, settle

ANSWER = {"status": "201", "type": "application/json", "body": '{"id": 7}', "why": "in the bank statement"}
SURE = {"sure": "1", "why": "cancelled, reference V-77"}
WHY = {"why": "the provider is back"}
FORMS = {"complete": ANSWER, "retryable": SURE, "ask": WHY}


def record(store: MemoryStore, one: Made) -> Record:
    """How an operation stands."""
    seen = store.get(one.id)
    assert seen is not None
    return seen.record


def outcome(found: Record) -> Any:
    """What is kept of it."""
    known = kept(found)
    return known.outcome if known is not None else None


@pytest.mark.parametrize("kind", FORMS)
async def test_nothing_is_done_before_it_is_confirmed(
    kind: str, alice: Visitor, store: MemoryStore, made: dict[str, Made]
) -> None:
    """The first form is a rehearsal that shows what would be done, by whom and why; the record stays as it was."""
    before = record(store, made["unknown"])
    page = await alice.decide(made["unknown"].id, kind, **FORMS[kind])
    assert (page.status_code, record(store, made["unknown"])) == (200, before)
    assert "This was a rehearsal" in words(page)
    assert f"Signed Alice: {FORMS[kind]['why']}" in words(page)


async def test_what_happened_is_completed_with_its_answer(
    alice: Visitor, store: MemoryStore, made: dict[str, Made]
) -> None:
    """Confirmed, the record has the answer as it was typed, signed with who and why."""
    given = ANSWER | {"headers": "Location: /orders/7\r\nx-note: two", "body": '{\r\n"id": 7}', "step": "do"}
    answer = await alice.decide(made["unknown"].id, "complete", **given)
    found = record(store, made["unknown"])
    assert answer.headers["location"] == f"../../operations/{made['unknown'].id.hex()}?done=complete"
    headers = ((b"content-type", b"application/json"), (b"location", b"/orders/7"), (b"x-note", b"two"))
    assert outcome(found) == Answer(201, (*headers, (b"content-length", b"10")), b'{\n"id": 7}')
    [line] = history(found)
    assert (line.by, line.why, line.source, line.target) == ("Alice", ANSWER["why"], State.UNKNOWN, State.COMPLETED)
    said = words(await alice.get(f"operations/{made['unknown'].id.hex()}?done=complete"))
    assert "every retry gets this answer" in said
    assert "Unknown to completed, by Alice" in said


@pytest.mark.parametrize("kind", FORMS)
async def test_what_is_settled_by_hand_is_told_to_sinks(kind: str, store: MemoryStore, made: dict[str, Made]) -> None:
    """Counted like what a reconciler finds out: when it is written, not when it is rehearsed or only asked again."""
    said: list[tuple[str, str]] = []
    alice = await let_in(store, sinks=(lambda event: said.append((event.name, event.detail)),))
    for step in ("", "do"):
        await alice.decide(made["unknown"].id, kind, **FORMS[kind], step=step)
    assert said == ([] if kind == "ask" else [("resolved", "by hand")])


async def test_an_answer_that_is_lost_is_told_as_done(
    alice: Visitor, store: MemoryStore, made: dict[str, Made]
) -> None:
    """With the box ticked, a tombstone is kept, whatever else the form has; the time to keep it is as written."""
    await alice.decide(made["unknown"].id, "complete", **ANSWER, gone="1", hours="48", step="do")
    found = record(store, made["unknown"])
    assert outcome(found) == Tombstone(201, "settled by hand, its answer is not known")
    assert found.expires_at == store.clock() + 48 * 3_600_000


async def test_what_did_not_happen_may_run_again(alice: Visitor, store: MemoryStore, made: dict[str, Made]) -> None:
    """Confirmed, the next retry is let in."""
    await alice.decide(made["unknown"].id, "retryable", **SURE, step="do")
    assert record(store, made["unknown"]).state is State.FAILED_RETRYABLE


async def test_a_dead_letter_is_asked_about_again(alice: Visitor, store: MemoryStore) -> None:
    """Confirmed, it is in the queue again."""
    dead = settle(store, claim(store, "dead"), State.UNKNOWN, note="given up")
    assert "Nothing by itself" in words(await alice.get(f"operations/{dead.id.hex()}"))
    await alice.decide(dead.id, "ask", **WHY, step="do")
    found = record(store, dead)
    assert (found.state, found.due_at) == (State.UNKNOWN, store.clock())


async def test_dead_letters_are_asked_about_together(alice: Visitor, store: MemoryStore) -> None:
    """One reason for all on the page, after the question whether that is meant."""
    dead = [settle(store, claim(store, f"dead{n}"), State.UNKNOWN) for n in range(3)]
    page = await alice.post("dead-letters", **WHY)
    assert ("Ask again about 3 dead letters?" in words(page), record(store, dead[0]).due_at) == (True, None)
    done = await alice.post("dead-letters", **WHY, step="do")
    assert done.headers["location"] == "./dead-letters?asked=3"
    assert "about 3 of them again" in words(await alice.get("dead-letters?asked=3"))
    assert all(record(store, one).due_at is not None for one in dead)


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("complete", {"why": ""}, "reason is missing"),
        ("complete", {"why": " \n"}, "reason is missing"),
        ("complete", {"why": "x" * 501}, "501 characters"),
        ("complete", {"status": "twohundred"}, "final status"),
        ("complete", {"status": "100"}, "final status"),
        ("complete", {"status": "9999999999"}, "final status"),
        ("complete", {"status": "²"}, "final status"),
        ("complete", {"body": "{"}, "not JSON"),
        ("complete", {"body": ""}, "not JSON"),
        ("complete", {"body": "[" * 100_000}, "not JSON"),
        ("complete", {"headers": "no colon"}, "no header"),
        ("complete", {"headers": "a b: c"}, "no header"),
        ("complete", {"headers": "x: \u4e2d"}, "HTTP does not carry"),
        ("complete", {"hours": "soon"}, "number of hours"),
        ("complete", {"hours": "-1"}, "number of hours"),
        ("complete", {"hours": "nan"}, "number of hours"),
        ("complete", {"hours": "1e99"}, "number of hours"),
        ("retryable", {"sure": ""}, "can no longer arrive"),
        ("retryable", {"why": ""}, "reason is missing"),
        ("ask", {"why": ""}, "reason is missing"),
    ],
)
async def test_a_form_that_says_too_little_is_given_back(
    kind: str, change: dict[str, str], says: str, alice: Visitor, store: MemoryStore, made: dict[str, Made]
) -> None:
    """With what is wrong, and with all that was typed; confirmed or not, nothing is done."""
    before = record(store, made["unknown"])
    fields = FORMS[kind] | {"headers": "x-kept: yes"} | change | {"step": "do"}
    page = await alice.decide(made["unknown"].id, kind, **fields)
    assert (page.status_code, says in words(page)) == (422, True)
    assert record(store, made["unknown"]) == before
    if kind == "complete" and "headers" not in change:
        assert "x-kept: yes" in page.text


# ---- meanwhile ---------------------------------------------------------------------------------------------------


async def test_a_decision_about_something_else_is_not_taken(
    alice: Visitor, store: MemoryStore, made: dict[str, Made]
) -> None:
    """Somebody settled it while the form was filled in: it is told, and theirs stands."""
    page = await alice.get(f"operations/{made['unknown'].id.hex()}")
    seen = store.get(made["unknown"].id)
    assert seen is not None
    Desk(store, Sealer()).retryable(seen, Signature("Bob", "it was void"))
    after = record(store, made["unknown"])
    answer = await alice.decide(made["unknown"].id, "complete", **ANSWER, mark=hidden(page, "mark"), step="do")
    assert (answer.status_code, "nothing was done" in words(answer)) == (409, True)
    assert record(store, made["unknown"]) == after


async def test_a_reconciler_that_asks_meanwhile_disturbs_nobody(
    alice: Visitor, store: MemoryStore, made: dict[str, Made]
) -> None:
    """An inquiry bumps the version and decides nothing: the form still means what it meant."""
    page = await alice.get(f"operations/{made['unknown'].id.hex()}")
    before = record(store, made["unknown"])
    store.swap(Swap(before, replace(before, version=before.version + 1, due_at=store.clock() + 9)))
    answer = await alice.decide(made["unknown"].id, "complete", **ANSWER, mark=hidden(page, "mark"), step="do")
    assert answer.status_code == 303


async def test_a_write_between_look_and_decision_wins(
    alice: Visitor, store: MemoryStore, made: dict[str, Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store compares the version: what moved on in the last moment is left alone, and that is told."""
    swap = MemoryStore.swap

    def late(self: MemoryStore, command: Swap) -> Any:
        swap(self, Swap(command.seen, replace(command.seen, version=command.seen.version + 1)))
        return swap(self, command)

    page = await alice.get(f"operations/{made['unknown'].id.hex()}")
    monkeypatch.setattr(MemoryStore, "swap", late)
    answer = await alice.decide(made["unknown"].id, "ask", **WHY, mark=hidden(page, "mark"), step="do")
    assert (answer.status_code, history(record(store, made["unknown"]))) == (409, ())


async def test_two_who_confirm_at_once_decide_once(alice: Visitor, store: MemoryStore, made: dict[str, Made]) -> None:
    """One is done, the other is told; the trail has one line."""
    bob = await let_in(store)
    sent = [who.decide(made["unknown"].id, "complete", **ANSWER, step="do") for who in (alice, bob)]
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*sent))
    assert (statuses, len(history(record(store, made["unknown"])))) == ([303, 409], 1)


@pytest.mark.parametrize(
    ("key", "kinds"),
    [
        ("running", set()),
        ("completed", set()),
        ("failed", {"complete"}),
        ("lapsed", {"complete", "retryable"}),
        ("unknown", {"complete", "retryable", "ask"}),
    ],
)
async def test_only_what_is_safe_is_offered(
    key: str, kinds: set[str], alice: Visitor, store: MemoryStore, made: dict[str, Made], clock: ManualClock
) -> None:
    """Finished and living operations are not settled here, not by a form made by hand either."""
    clock.advance(10)
    page = await alice.get(f"operations/{made[key].id.hex()}")
    assert {kind for kind in FORMS if f"/{kind}" in page.text} == kinds
    before = record(store, made[key])
    for kind in set(FORMS) - kinds:
        # The mark says state, attempt and trail; none of that is secret.
        mark = f"{before.claimed_at}.{before.attempts}.{before.state.word}.0"
        answer = await alice.decide(made[key].id, kind, **FORMS[kind], mark=mark, step="do")
        assert answer.status_code == 409
    assert record(store, made[key]) == before


async def test_what_cannot_be_read_is_not_signed(store: MemoryStore) -> None:
    """A record that is sealed with a ring that the console has not got says so, and stays."""
    keys = {"k1": bytes(32)}
    one = claim(store, "k")
    sealed = Sealer(keys=keys, current="k1").seal(one.id, b"\x13\x00")
    settle(store, one, State.UNKNOWN, outcome=sealed, due_for=1)
    alice = await let_in(store)
    answer = await alice.decide(one.id, "ask", **WHY, step="do")
    assert (answer.status_code, "cannot be read here" in words(answer)) == (422, True)
    assert (
        await (await let_in(store, sealer=Sealer(keys=keys, current="k1"))).decide(one.id, "ask", **WHY)
    ).status_code == 200
