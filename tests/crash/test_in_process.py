from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from oncekey.adapters.asgi_work import Work
from oncekey.core.record import State
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.keeper import Keeper
from oncekey.errors import ConfigurationError
from oncekey.http.exchange import Exchange
from oncekey.testing import RuleBroken
from oncekey.testing.crashes import Place, Report, Trial, Way, explore
from tests.crash.handlers import BAD, GOOD, PAY, asgi, charge

EMBEDDED = ("memory://", "sqlite://")


def places(report: Report) -> set[Place]:
    """Which kinds of steps were hit."""
    return {case.step.place for case in report.cases}


@pytest.mark.parametrize("store", EMBEDDED)
@pytest.mark.parametrize("name", GOOD)
def test_no_crash_breaks_a_rule(name: str, store: str) -> None:
    """One effect, one answer, a defined state after the lease: whatever fails at whichever step."""
    report = explore(GOOD[name], store=store).check()
    wanted = set(Place) if name.startswith("asgi") else set(Place) - {Place.AWAIT}
    assert places(report) == wanted
    assert len(report.cases) >= 40
    assert len(report.missed) <= len(report.cases) // 10


# One way of each kind: before and after a call of the store, in the user's code, and at the turns of a loop.
AT_A_SERVER = (Way.DOWN, Way.LOSE, Way.CANCELLED, Way.SHUTDOWN)


@pytest.mark.parametrize("server", ["postgres_url", "redis_url"])
@pytest.mark.parametrize("name", GOOD)
def test_no_crash_breaks_a_rule_at_a_server(name: str, server: str, request: pytest.FixtureRequest) -> None:
    """The same where the store is a server, with a clock of its own."""
    report = explore(GOOD[name], store=request.getfixturevalue(server), ways=AT_A_SERVER).check()
    assert {case.way for case in report.cases} == set(AT_A_SERVER if name.startswith("asgi") else AT_A_SERVER[:3])
    assert len(report.missed) <= len(report.cases) // 10


def test_the_plain_handler_ends_completed_or_unknown() -> None:
    """Under at_most_once an attempt that was hit while it worked is never run again."""
    report = explore(GOOD["asgi-at_most_once"])
    lines = [case for case in report.cases if case.step.place is Place.LINE]
    assert {case.again.state for case in lines} == {State.UNKNOWN}
    assert set(report.ends) == {"completed", "unknown"}


@pytest.mark.parametrize("name", ["asgi-downstream", "wsgi-downstream"])
def test_a_lapsed_attempt_is_run_again_where_its_receiver_deduplicates(name: str) -> None:
    """With the store gone after the effect, the next process takes over, and the effect stays one."""
    report = explore(GOOD[name], ways=[Way.DOWN])
    [case] = [case for case in report.cases if (case.step.place, case.step.what) == (Place.BEFORE, "settle")]
    assert (case.again.state, case.again.effects) == (State.COMPLETED, 1)


def test_before_the_latch_a_failed_attempt_is_run_again() -> None:
    """A handler that marks its effect is retried when it fails before."""
    report = explore(GOOD["asgi-latch"], ways=[Way.ERROR])
    assert report.ends["completed"] > 0
    assert report.ends["unknown"] > 0


@pytest.mark.parametrize("name", BAD)
def test_a_bad_handler_is_found_out(name: str) -> None:
    """The report names what a handler does wrong, and at which step."""
    make, trouble, where = BAD[name]
    with pytest.raises(RuleBroken) as broken:
        explore(make).check()
    assert trouble in str(broken.value)
    assert where in str(broken.value)


# ---- faults of our own that the tool must see ---------------------------------------------------------------------


def test_a_claim_released_on_errors_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded bug: an exception frees the key."""
    failed = Exchange.failed

    def freed(self: Any, attempt: Any, error: Any) -> Any:
        return failed(self, attempt, error)._replace(target=State.FAILED_RETRYABLE, keep_for=9000)

    monkeypatch.setattr(Exchange, "failed", freed)
    assert any("2 effects" in why[0] for _, why in explore(GOOD["asgi-at_most_once"]).broken)


def test_work_that_dies_with_its_client_and_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded bug: whoever is cancelled settles nothing and says that nothing was done."""

    async def released(self: Any, error: BaseException | None) -> None:
        done = self._exchange.failed(self._attempt, error)._replace(target=State.FAILED_RETRYABLE, keep_for=9000)
        await self._answer.settle(done)

    monkeypatch.setattr(Work, "_unanswered", released)
    assert explore(GOOD["asgi-at_most_once"], ways=[Way.CANCELLED]).broken


def test_an_outcome_that_is_never_owed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded bug: an answer goes out although it was not stored, and a retry hears something else."""
    settle = AsyncEngine.settle

    async def lax(self: Any, attempt: Any, settlement: Any) -> Any:
        try:
            return await settle(self, attempt, settlement)
        except Exception:
            raise NotImplementedError from None

    monkeypatch.setattr(AsyncEngine, "settle", lax)
    monkeypatch.setattr(Keeper, "owe", lambda self, settlement, quiet=False: None)
    report = explore(asgi(charge, take_over=None, guarantee="deduplicated_downstream"), ways=[Way.DOWN])
    assert any("2 effects" in why[0] for _, why in report.broken)


# ---- the tool itself ----------------------------------------------------------------------------------------------


def test_nothing_stays_traced_or_running() -> None:
    """After an exploration the interpreter is as it was before."""
    before = (sys.gettrace(), threading.gettrace(), threading.active_count())
    explore(GOOD["wsgi-at_most_once"], ways=[Way.EXIT])
    assert (sys.gettrace(), threading.gettrace()) == before[:2]


async def test_an_async_test_is_told_to_call_it_otherwise() -> None:
    """The tool runs loops of its own, and says so."""
    with pytest.raises(ConfigurationError, match="a test that is not async"):
        explore(GOOD["asgi-at_most_once"])


def test_a_trial_that_shows_nothing_is_refused() -> None:
    """No effect, no line of the user's, or no key: then a report would say nothing."""

    def blind(store: str, folder: Path) -> Trial:
        trial = GOOD["asgi-at_most_once"](store, folder)
        return Trial(asgi=trial.asgi, request=PAY, effects=lambda key: 0)

    with pytest.raises(ConfigurationError, match="had no effect"):
        explore(blind)
    with pytest.raises(ConfigurationError, match="no line of the handler was seen"):
        explore(GOOD["asgi-at_most_once"], code=lambda file: False)
    with pytest.raises(ConfigurationError, match="one application"):
        Trial(request=PAY, effects=lambda key: 0)


def test_a_request_that_is_not_guarded_is_refused() -> None:
    """Without a crash the retry must be a replay."""

    def keyless(store: str, folder: Path) -> Trial:
        trial = GOOD["asgi-at_most_once"](store, folder)
        return Trial(asgi=trial.asgi, effects=trial.effects, request=lambda key: PAY(key)._replace(headers=()))

    with pytest.raises(ConfigurationError, match="its retry replayed"):
        explore(keyless)
