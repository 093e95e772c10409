from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.checker import RULES, Terms, broken, figures, judge
from tests.chaos.history import Attempt, Call, Effect, Fault, History, Kind, Operation, Word, lines
from tests.chaos.rarities import counted

ALICE = Operation("alice", "k1")
TERMS = Terms(lease_for=1.0, slack=0.5)


def call(kind: Kind, at: float, until: float, **more: object) -> Call:
    made = Call(ALICE, "p1", at, until, kind, worker="w0")
    if kind is Kind.FINAL:
        made.answer, made.receipt, made.echo = "a1", "r1", "alice"
    for name, value in more.items():
        setattr(made, name, value)
    return made


def sound() -> History:
    """One effect, a duplicate that was told to wait, a replay, another body, a cut upload, and a last look."""
    return History(
        calls=[
            call(Kind.FINAL, 1.0, 2.0),
            call(Kind.BUSY, 1.5, 1.6),
            call(Kind.INFO, 0.5, 0.6, payload="half", whole=False),
            call(Kind.MISMATCH, 3.0, 3.1, payload="p2"),
            call(Kind.UNAVAILABLE, 3.2, 3.3),
            call(Kind.FINAL, 4.0, 4.1, replayed=True, last=True),
        ],
        effects=[Effect(ALICE, 1, "p1", "r1", 1.4, pid=7)],
        attempts=[Attempt(ALICE, 1, 1.1, 1.9, pid=7)],
        ended=True,
    )


def test_a_sound_history_breaks_no_rule() -> None:
    """What OnceKey promises is what the checker lets pass."""
    assert judge(sound(), TERMS) == ([], [])
    assert judge(sound(), TERMS).passed


def second_effect(history: History) -> None:
    history.effects.append(Effect(ALICE, 2, "p1", "r2", 1.8))


def other_bytes(history: History) -> None:
    history.calls[-1].answer = "a2"


def receipt_of_nothing(history: History) -> None:
    history.effects.clear()


def busy_after_final(history: History) -> None:
    history.calls.append(call(Kind.BUSY, 2.1, 2.2))


def unknown_after_final(history: History) -> None:
    history.calls.append(call(Kind.UNKNOWN, 2.1, 2.2))


def released_after_final(history: History) -> None:
    history.calls.append(call(Kind.RELEASED, 2.1, 2.2))


def mismatch_of_the_same_request(history: History) -> None:
    history.calls.append(call(Kind.MISMATCH, 2.1, 2.2))


def answer_of_another(history: History) -> None:
    history.calls[-1].echo = "bob"


def answer_to_another_request(history: History) -> None:
    history.calls.append(call(Kind.FINAL, 3.0, 3.1, payload="p2"))


def not_final_at_the_end(history: History) -> None:
    history.calls[-1] = call(Kind.UNAVAILABLE, 4.0, 4.1, last=True)


def never_asked_at_the_end(history: History) -> None:
    history.calls.pop()


def busy_for_nobody(history: History) -> None:
    history.calls.append(call(Kind.BUSY, -9.0, -8.9))


def truncated_effect(history: History) -> None:
    history.effects[0].payload = "half"


def nameless_error(history: History) -> None:
    history.calls.append(call(Kind.UNTYPED, 1.0, 1.1))


BREAKS: tuple[tuple[str, Callable[[History], None]], ...] = (
    ("R1", second_effect),
    ("R2", other_bytes),
    ("R3", receipt_of_nothing),
    ("R4", busy_after_final),
    ("R4", unknown_after_final),
    ("R4", released_after_final),
    ("R4", mismatch_of_the_same_request),
    ("R5", answer_of_another),
    ("R6", answer_to_another_request),
    ("R7", not_final_at_the_end),
    ("R7", never_asked_at_the_end),
    ("R8", busy_for_nobody),
    ("R9", truncated_effect),
    ("typed", nameless_error),
)


@pytest.mark.parametrize(("rule", "spoil"), BREAKS, ids=[spoil.__name__ for _, spoil in BREAKS])
def test_each_rule_rejects_the_history_that_breaks_it(rule: str, spoil: Callable[[History], None]) -> None:
    """One change to a sound history, and the rule that it breaks is named, with the operation."""
    history = sound()
    spoil(history)
    found = {(each.rule, each.operation) for each in broken(history, TERMS)}
    assert (rule, ALICE) in found
    # A final answer to another request and a payload in pieces look wrong from two sides; the rest from one.
    assert {name for name, _ in found} <= {rule, "R6"}


def test_every_rule_has_a_history_that_it_rejects() -> None:
    """A rule that nothing can break would be no rule."""
    assert {rule.name for rule in RULES} == {name for name, _ in BREAKS}


def test_operations_are_judged_apart() -> None:
    """Two callers with one key are two operations: two effects, none of them double."""
    history, bob = sound(), Operation("bob", "k1")
    history.calls += [replace(each, operation=bob, echo="bob" if each.echo else "") for each in history.calls]
    history.effects += [replace(each, operation=bob) for each in history.effects]
    history.attempts += [replace(each, operation=bob) for each in history.attempts]
    assert judge(history, TERMS) == ([], [])


@pytest.mark.parametrize(("ended", "stuck"), [(1.9, True), (None, False), (9.0, False)])
def test_busy_is_honest_while_an_attempt_or_its_lease_lasts(ended: float | None, *, stuck: bool) -> None:
    """An attempt that ended casts its lease's shadow and no more; one whose process died casts it to the end."""
    history = sound()
    history.calls = [call(Kind.BUSY, 8.0, 8.1)]
    history.attempts[0].end = ended
    history.ended = False
    assert bool(broken(history, TERMS)) is stuck


def test_a_key_on_the_list_of_unknowns_is_not_stuck() -> None:
    """What is published as unknown is known to be unknown."""
    history = sound()
    history.calls.pop()
    history.unsettled = {ALICE}
    assert broken(history, TERMS) == []


def test_a_key_that_was_never_sent_whole_is_not_stuck() -> None:
    """Of a request that never arrived there is nothing to settle."""
    history = History(calls=[call(Kind.INFO, 1.0, 1.1, whole=False)], ended=True)
    assert broken(history, TERMS) == []


def test_a_run_below_its_floors_is_void() -> None:
    """Nothing broken in a run in which nothing happened is no result."""
    history = sound()
    history.faults.append(Fault("kill at the effect", "w0", 5.0, pid=1))
    floors = {"operations": 6, "fault: kill at the effect": 2, "late truth": 1}
    verdict = judge(history, replace(TERMS, floors=floors))
    assert verdict.void == [
        "fault: kill at the effect: 1, at least 2 are needed",
        "late truth: 0, at least 1 are needed",
    ]
    assert not verdict.passed


def test_a_take_over_that_was_refused_is_seen() -> None:
    """Its owner had begun and not ended, and a retry was told that nobody knows."""
    history = sound()
    history.attempts[0].end = None
    history.calls.insert(0, call(Kind.UNKNOWN, 1.5, 1.6))
    assert counted(history)["take-over refused"] == 1
    history.attempts[0].end = 1.4
    assert counted(history)["take-over refused"] == 0


def test_a_late_truth_is_seen() -> None:
    """The one attempt was given up, and completed after that; a reconciler's answer is none."""
    history = sound()
    history.calls.insert(0, call(Kind.UNKNOWN, 1.2, 1.3))
    history.words = [Word("completed", 1.9, ALICE)]
    assert counted(history)["late truth"] == 1
    history.words.append(Word("unknown-done", 1.8, ALICE))
    assert counted(history)["late truth"] == 0
    assert counted(history)["unknown reconciled: done"] == 1


def test_a_replay_after_a_crash_is_seen() -> None:
    """The process that did the work is dead, and its answer is given all the same."""
    history = sound()
    history.faults.append(Fault("kill at random", "w0", 3.5, pid=7))
    assert counted(history)["replay after crash"] == 1
    history.faults[0].at = 4.05
    assert counted(history)["replay after crash"] == 0


def test_the_report_counts_operations_and_not_calls() -> None:
    """A key that broke a rule ten times is one key."""
    history = sound()
    history.calls += [call(Kind.BUSY, 5.0 + each, 5.1 + each) for each in range(10)]
    assert figures(broken(history, TERMS))["lost"] == 1


def test_a_story_is_told_in_the_order_of_time() -> None:
    """Whoever must find out why a rule broke reads one key from top to bottom."""
    history = sound()
    [story] = history.stories().values()
    told = [line.split()[:2] for line in story.told()]
    assert [kind for _, kind in told] == ["call", "call", "attempt", "effect", "call", "call", "call", "call"]
    assert len(lines(history)) == 8
