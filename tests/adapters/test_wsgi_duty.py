"""Start and end of a WSGI installation: check, drain, fork."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from oncekey import Engine, SchemaMissing, StoreUnavailable, UnsafeStore
from oncekey.core.record import State
from oncekey.stores.contract import Finding
from oncekey.stores.memory import MemoryStore
from tests.adapters.wsgi_kit import Guarded, Shop, call, post

REFUSAL = Finding("refusal", "eviction policy is allkeys-lru", "set maxmemory-policy noeviction")


class Checked(MemoryStore):
    """A store whose check says what it is told."""

    def __init__(self, *findings: Finding, error: Exception | None = None) -> None:
        super().__init__()
        self.findings = list(findings)
        self.error = error
        self.checks = 0

    def check(self) -> list[Finding]:
        self.checks += 1
        if self.error is not None:
            raise self.error
        return self.findings


@pytest.mark.parametrize("error", [None, SchemaMissing("run `oncekey migrate`"), StoreUnavailable("no route")])
def test_an_unfit_store_is_never_used(error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    """503 with Retry-After, nothing runs, and the log says what to change."""
    shop, store = Shop(), Checked(REFUSAL, error=error)
    refused = call(Guarded(shop, store))
    assert (refused.status, shop.effects) == (503, [])
    assert int(refused["retry-after"] or 0) >= 1
    assert (str(error) if error else REFUSAL.fix) in caplog.text


def test_check_says_at_once_what_is_wrong() -> None:
    """Called at start-up it raises; once the store is fit it is not asked again."""
    store = Checked(REFUSAL)
    guarded = Guarded(Shop(), store)
    with pytest.raises(UnsafeStore, match="noeviction"):
        guarded.app.check()
    store.findings.clear()
    guarded.app.check()
    assert [call(guarded).status for _ in range(3)] == [201] * 3
    assert store.checks == 2


def test_an_unfit_store_is_looked_at_again_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every request, but soon after it was mended the work goes on."""
    store = Checked(REFUSAL)
    guarded = Guarded(Shop(), store)
    assert [call(guarded).status for _ in range(3)] == [503] * 3
    assert store.checks == 1
    store.findings.clear()
    monkeypatch.setattr("oncekey.adapters.wsgi_duty.RECHECK_FOR", 0)
    guarded.app.duty._again_at = 0
    assert call(guarded).status == 201


def test_a_warning_is_said_aloud_once(caplog: pytest.LogCaptureFixture) -> None:
    """It does not keep the work from running."""
    guarded = Guarded(Shop(), Checked(Finding("warning", "no AOF", "set appendonly yes")))
    with caplog.at_level(logging.WARNING):
        assert [call(guarded).status for _ in range(2)] == [201, 201]
    assert caplog.text.count("set appendonly yes") == 1


def test_requests_that_are_not_ours_need_no_store() -> None:
    """The check happens at the first guarded request, not before."""
    store = Checked(REFUSAL)
    assert call(Guarded(Shop(), store), post(REQUEST_METHOD="GET")).status == 201
    assert store.checks == 0


class Slow(Shop):
    """Works until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.gate = threading.Event(), threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.entered.set()
        self.gate.wait(5)
        return super().__call__(environ, start_response)


def test_shutdown_waits_for_running_work_and_takes_no_new() -> None:
    """What runs is finished and stored, what comes is answered 503."""
    slow, answers = Slow(), []
    guarded = Guarded(slow)
    working = threading.Thread(target=lambda: answers.append(call(guarded)))
    working.start()
    slow.entered.wait(5)
    ending = threading.Thread(target=guarded.app.shutdown)
    ending.start()
    while not guarded.app.duty._ended:
        ending.join(0.001)
    assert call(guarded, post("key-2")).status == 503
    slow.gate.set()
    ending.join()
    working.join()
    assert (answers[0].status, guarded.state) == (201, State.COMPLETED)


def test_work_that_outlasts_the_shutdown_is_unknown_until_it_ends() -> None:
    """Recorded so that it can be found; if the thread comes to its end after all, the truth is stored."""
    slow, answers = Slow(), []
    guarded = Guarded(slow)
    working = threading.Thread(target=lambda: answers.append(call(guarded)))
    working.start()
    slow.entered.wait(5)
    guarded.app.shutdown(grace_for=0)
    assert guarded.state is State.UNKNOWN
    slow.gate.set()
    working.join()
    assert (answers[0].status, guarded.state) == (201, State.COMPLETED)


def test_an_engine_of_its_own_is_closed_once_and_a_shared_one_is_left() -> None:
    """Who made it closes it."""
    closed = []

    class Watched(MemoryStore):
        def close(self) -> None:
            closed.append(self)

    shared, own = Watched(), Watched()
    for store in (Engine(shared), own):
        guarded = Guarded(Shop(), store)
        call(guarded)
        guarded.app.shutdown()
        guarded.app.shutdown()
    assert closed == [own]


def test_a_fork_leaves_running_work_to_its_parent() -> None:
    """A child that ends must neither wait for its parent's work nor declare it unknown."""
    slow = Slow()
    guarded = Guarded(slow)
    working = threading.Thread(target=lambda: call(guarded))
    working.start()
    slow.entered.wait(5)
    guarded.app.duty._pid = os.getppid()  # as the child of a fork sees it
    guarded.app.shutdown()
    state = guarded.state
    slow.gate.set()
    working.join()
    assert (state, guarded.state) == (State.EXECUTING, State.COMPLETED)


AT_EXIT = """
import sys, threading, time
from tests.adapters.wsgi_kit import Shop, call
from oncekey import SHARED
from oncekey.adapters.wsgi import OnceKeyWSGI

class Slow(Shop):
    def __call__(self, environ, start_response):
        entered.set()
        time.sleep(0.2)
        return super().__call__(environ, start_response)

entered = threading.Event()
app = OnceKeyWSGI(Slow(), sys.argv[1], scope=SHARED)
threading.Thread(target=call, args=(app,), daemon=True).start()
entered.wait()
"""


def test_the_interpreter_waits_for_work_in_daemon_threads(tmp_path: Any) -> None:
    """A server that ends its process by returning (waitress at Ctrl-C) loses no outcome."""
    url = f"sqlite:///{tmp_path}/oncekey.db"
    subprocess.run([sys.executable, "-c", AT_EXIT, url], check=True, timeout=30)
    from oncekey.stores.open import open_store

    store = open_store(url)
    states = [record.state for record in store.scan(list(State)).records]
    store.close()
    assert states == [State.COMPLETED]
