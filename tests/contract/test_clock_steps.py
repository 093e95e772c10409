"""The store's own clock is set back an hour under running work, and forward again: hazard 25."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from oncekey.core.commands import DONE
from oncekey.core.decision import InProgress, Replay, Unknown
from oncekey.core.record import State
from oncekey.operations import doctor, sweep
from oncekey.stores import sqlite
from oncekey.stores.open import open_store
from oncekey.testing import Bench
from oncekey.testing.bench import HOUR, TERMS, another_request
from oncekey.testing.clock import START
from oncekey.testing.scenarios.retention import purge_all
from tests.chaos.launching import FAKETIME
from tests.conftest import on_missing, started
from tests.contract.stores import STORE_FOR
from tests.infra import EngineMissing, PostgresServer, Server, ValkeyServer
from tests.stores.postgres.items import until

# A lease that a dead owner leaves, in milliseconds.
LEFT = 400
SECOND = 1000


def stepped(kind: type[Server]) -> Server:
    """A server whose clock goes by a file in its folder."""

    class Stepped(kind):  # type: ignore[valid-type,misc] # one class for each kind of server
        def command(self) -> list[str]:
            file = Path(self.folder) / "clock"
            if self.folder != Path() and not file.exists():
                set_clock(self, "+0")
            words = {"LD_PRELOAD": FAKETIME[-1], "FAKETIME_TIMESTAMP_FILE": file, "FAKETIME_NO_CACHE": 1}
            words |= {"FAKETIME_DONT_FAKE_MONOTONIC": 1}
            return ["env", *(f"{name}={value}" for name, value in words.items()), *super().command()]

    return cast("Server", Stepped())


def set_clock(server: Server, to: str) -> None:
    """By how much it is off from now on. Written beside and moved, so that nobody reads half of it."""
    file = server.folder / "clock"
    new = file.with_suffix(".new")
    new.write_text(f"{to}\n")
    new.chmod(0o644)
    new.replace(file)


Step = Callable[[str], None]


# Debian's Redis does not start under libfaketime: jemalloc asks for the time before it is there.
@pytest.fixture(params=[PostgresServer, ValkeyServer], ids=lambda kind: kind.name)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[Bench, Step]]:
    """A server, and what sets its clock."""
    if not FAKETIME:
        on_missing(EngineMissing("libfaketime is not installed; run: tools/provision servers"))
    with started(lambda: stepped(request.param)) as server:
        bench = Bench(lambda: open_store(server.url, store_for=STORE_FOR))
        bench.store.migrate()
        yield bench, lambda to: set_clock(server, to)
        bench.close()


def test_a_clock_that_goes_back_makes_all_longer_and_nothing_shorter(served: tuple[Bench, Step]) -> None:
    """Nobody runs what another runs, answers stay, owners go on; only the lease of a dead one lasts longer."""
    bench, step = served
    alive, dead, done = bench.won(), bench.won(lease_for=LEFT), bench.settled()
    before = bench.now()
    step("-1h")
    until(lambda: bench.now() < before - HOUR // 2)
    purge_all(bench.store)
    for claim in (alive, dead):
        assert isinstance(bench.enter(another_request(claim)), InProgress)
    assert isinstance(bench.enter(another_request(done)), Replay)
    assert sweep(bench.store, TERMS).unknown == 0
    # The owner's next renewal counts from the new time, and its outcome is welcome.
    assert bench.renew(alive, lease_for=60 * SECOND) == DONE
    assert (bench.record(alive.id).lease_until or 0) <= bench.now() + 60 * SECOND
    assert bench.settle(alive) == DONE
    assert isinstance(bench.enter(another_request(alive)), Replay)
    assert "set back" in " ".join(finding.what for finding in doctor(bench.store).findings)

    step("+0")
    until(lambda: bench.now() > before)
    bench.wait_until(bench.record(dead.id).lease_until)
    assert isinstance(bench.enter(another_request(dead)), Unknown)
    assert isinstance(bench.enter(another_request(done)), Replay)
    assert bench.record(dead.id).state is State.UNKNOWN


def test_a_clock_that_was_set_back_is_said(tmp_path: Path) -> None:
    """The check-up finds claims of the future; a store whose clock went on is not accused of it."""
    times = [START]
    url = f"sqlite:///{tmp_path}/once.db"
    bench = Bench(lambda: sqlite.open_sync(url, store_for=STORE_FOR, clock=lambda: times[0]))
    bench.store.migrate()
    bench.won()
    assert not doctor(bench.store).warned
    times[0] -= HOUR
    warned = [finding for finding in doctor(bench.store).findings if finding.level == "warning"]
    assert [("set back by 3600 s" in finding.what, "oncekey" in finding.fix) for finding in warned] == [(True, True)]
    bench.close()
