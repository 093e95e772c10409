from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from oncekey.adapters import asgi_answer, wsgi_answer
from oncekey.core.record import Guarantee, State
from oncekey.errors import ConfigurationError
from oncekey.testing import RuleBroken
from oncekey.testing.crashes import Place, Trial, Way, explore_kills
from tests.crash.handlers import BAD, GOOD, PAY, afterwards, asgi, charge

STORES = ("sqlite", "postgres", "redis")


@pytest.fixture
def address(request: pytest.FixtureRequest, store: str) -> str:
    """Where records outlive a process."""
    return "sqlite://" if store == "sqlite" else request.getfixturevalue(f"{store}_url")


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", GOOD)
def test_no_kill_breaks_a_rule(name: str, store: str, address: str) -> None:
    """One effect, one answer, a defined state after the lease: at whichever step the process is killed."""
    report = explore_kills(GOOD[name], store=address).check()
    assert {case.step.place for case in report.cases} == {Place.BEFORE, Place.AFTER, Place.LINE, Place.SERVER}
    assert {case.way for case in report.cases} == {Way.KILL}
    assert len(report.cases) >= 12
    assert report.missed == []


@pytest.mark.parametrize("name", ["asgi-at_most_once", "wsgi-at_most_once"])
def test_whoever_is_killed_at_work_leaves_the_outcome_unknown(name: str) -> None:
    """Under at_most_once nobody runs it again, whether its effect has happened or not."""
    report = explore_kills(GOOD[name])
    lines = [case for case in report.cases if case.step.place is Place.LINE]
    assert {case.again.state for case in lines} == {State.UNKNOWN}
    assert {case.again.effects for case in lines} == {0, 1}


@pytest.mark.parametrize("name", ["asgi-downstream", "wsgi-downstream"])
def test_whoever_is_killed_is_replaced_where_the_receiver_deduplicates(name: str) -> None:
    """Each operation ends completed, with one effect."""
    report = explore_kills(GOOD[name])
    assert {(case.again.state, case.again.effects) for case in report.cases} == {(State.COMPLETED, 1)}


@pytest.mark.parametrize("name", ["asgi-latch", "wsgi-latch"])
def test_before_the_latch_a_killed_attempt_is_run_again(name: str) -> None:
    """What was killed before its effect began ends completed, what was killed after it unknown."""
    report = explore_kills(GOOD[name])
    ends = {case.step: case.again.state for case in report.cases}
    [begun] = [at for at, step in enumerate(ends) if step == (Place.AFTER, "renew")]
    [done] = [at for at, step in enumerate(ends) if step == (Place.AFTER, "settle")]
    states = list(ends.values())
    assert set(states[:begun]) == set(states[done:]) == {State.COMPLETED}
    assert set(states[begun:done]) == {State.UNKNOWN}


def test_whoever_is_killed_after_the_answer_has_answered() -> None:
    """Background work is not guarded: a process that dies in it leaves the answer, and nobody runs it again."""
    report = explore_kills(afterwards).check()
    at_mail = [case for case in report.cases if "in mail" in str(case.step)]
    assert len(at_mail) >= 3
    assert {(case.again.state, case.again.status, case.again.effects) for case in at_mail} == {
        (State.COMPLETED, 201, 1)
    }


# ---- what the tool must see ---------------------------------------------------------------------------------------


def test_a_bad_handler_is_found_out() -> None:
    """A handler that says its receiver deduplicates, and gives it no key, is named with the step."""
    make, trouble, _ = BAD["two effects after a take-over"]
    with pytest.raises(RuleBroken, match=trouble):
        explore_kills(make).check()


def test_an_answer_before_its_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded bug: the answer goes to the client, and then to the store."""

    async def hasty(self: Any, body: bytes, lack: str) -> bool:
        done = self._exchange.answered(self._attempt, self._start["status"], self._headers, body, lack)
        await self._send({**self._start, "headers": self._headers + done.marks})
        await self._send({"type": "http.response.body", "body": body})
        await self.settle(done.settlement)
        return False

    monkeypatch.setattr(asgi_answer.Answering, "_commit", hasty)
    told = [why for _, why in explore_kills(GOOD["asgi-at_most_once"]).broken]
    assert ["a client was told 201 before it was stored"] in told


def test_an_answer_before_its_record_is_found_under_wsgi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded bug: the same with start_response and write."""

    def hasty(self: Any, head: Any, body: bytes, lack: str) -> bool:
        done = self._exchange.answered(self._attempt, head.status, head.headers, body, lack)
        self._start_response(head.line, head.said)(body)
        self.overruled = self.settle(done.settlement)
        return True

    monkeypatch.setattr(wsgi_answer.Answering, "_commit", hasty)
    assert explore_kills(GOOD["wsgi-at_most_once"]).broken


def test_a_claim_that_dies_with_its_owner_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded bug: a lapsed lease means that the key is free again."""
    monkeypatch.setattr(Guarantee, "may_take_over", property(lambda self: True))
    told = [why for _, why in explore_kills(asgi(charge, take_over=True)).broken]
    assert ["2 effects, and 1 without a crash"] in told


# ---- the tool itself ----------------------------------------------------------------------------------------------


def test_nothing_is_left_running() -> None:
    """After an exploration there are the threads and the processes that there were before."""
    before = (children(), threading.active_count())
    explore_kills(GOOD["wsgi-at_most_once"])
    assert (children(), threading.active_count()) == before


def children() -> set[str]:
    """The processes that this one has started and that are not gone."""
    return {one for task in Path("/proc/self/task").iterdir() for one in (task / "children").read_text().split()}


def test_effects_that_die_with_their_process_are_refused() -> None:
    """A list in memory would say that nothing had happened."""
    effects: list[str] = []

    async def forgotten(operation: Any, ledger: Any) -> int:
        effects.append(operation.key)
        return len(effects)

    def make(store: str, folder: Path) -> Trial:
        trial = asgi(forgotten)(store, folder)
        return Trial(asgi=trial.asgi, request=PAY, effects=effects.count)

    with pytest.raises(ConfigurationError, match="let it count what outlives a process"):
        explore_kills(make)


def test_records_that_die_with_their_process_are_refused() -> None:
    """Memory is no place for them here."""
    with pytest.raises(ConfigurationError, match="records in memory die"):
        explore_kills(GOOD["asgi-at_most_once"], store="memory://")


def test_a_system_that_cannot_fork_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the other exploration is the one to use."""
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ConfigurationError, match="this system cannot fork: use explore"):
        explore_kills(GOOD["asgi-at_most_once"])


def test_a_process_that_cannot_start_says_why() -> None:
    """An application that is built in one process only fails in the next, and its error is shown."""
    here = os.getpid()

    def make(store: str, folder: Path) -> Trial:
        if os.getpid() != here:
            raise RuntimeError("no second process, please")
        return asgi(charge)(store, folder)

    with pytest.raises(ConfigurationError, match="no second process, please"):
        explore_kills(make)
