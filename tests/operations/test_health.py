from __future__ import annotations

from collections.abc import Callable

import pytest

from oncekey.errors import SchemaMissing, StoreUnavailable, UnsafeStore
from oncekey.operations import doctor, migrate, stats
from oncekey.stores.contract import Finding
from oncekey.stores.memory import MemoryStore
from oncekey.testing.clock import ManualClock
from tests.operations.filled import fill

URL = "postgresql://app:s3cret@db/app"


class Server(MemoryStore):
    """A store that looks like a server, whose check and reads answer as a test says."""

    url = URL

    def __init__(self, check: Callable[[], list[Finding]] = list, clock: Callable[[], int] | None = None) -> None:
        super().__init__(clock or ManualClock())
        self.checked = check

    def check(self) -> list[Finding]:
        """Answer as the test says."""
        return self.checked()


def raising(error: Exception) -> Callable[[], list[Finding]]:
    """A check that fails."""

    def check() -> list[Finding]:
        raise error

    return check


def test_healthy_store_is_all_ok() -> None:
    """Findings come through with the address masked, and nothing is wrong."""
    clock = ManualClock()
    health = doctor(Server(lambda: [Finding("ok", "fsync on")], clock), clock)
    assert health.store == "postgresql://app:***@db/app"
    assert (health.reachable, health.refused, health.warned, health.skew) == (True, False, False, 0)
    assert [finding.what for finding in health.findings[:2]] == ["the store is reachable", "fsync on"]


def test_unreachable_store_is_reported_without_its_password() -> None:
    """A store that does not answer is a refusal, with the driver's words and not the password."""
    health = doctor(Server(raising(StoreUnavailable(f"no answer from {URL}, password s3cret"))))
    assert (health.reachable, health.refused) == (False, True)
    assert "no answer from postgresql://app:***@db/app" in health.findings[0].what
    assert "s3cret" not in str(health)


@pytest.mark.parametrize("level", ["warning", "refusal"])
def test_worst_finding_decides(level: str) -> None:
    """A warning is a warning and a refusal a refusal, beside any number of good ones."""
    findings = [Finding("ok", "a"), Finding(level, "b", "change it"), Finding("ok", "c")]  # type: ignore[arg-type]
    health = doctor(Server(lambda: findings, ManualClock()), ManualClock())
    assert (health.warned, health.refused) == (level == "warning", level == "refusal")


@pytest.mark.parametrize("error", [SchemaMissing("the tables are not there"), UnsafeStore("it evicts")])
def test_check_that_refuses_is_a_finding(error: Exception) -> None:
    """A store that raises instead of finding is refused just so, and its clock is not asked for without a schema."""
    health = doctor(Server(raising(error)))
    assert (health.reachable, health.refused) == (True, True)
    assert str(error) in [finding.what for finding in health.findings]


@pytest.mark.parametrize(("ahead", "said"), [(5000, "5.0 s behind"), (-61_000, "61.0 s ahead of")])
def test_clocks_that_disagree_are_a_warning(ahead: int, said: str) -> None:
    """The store's clock and ours may differ by a second; more is said, with the direction."""
    ours = ManualClock()
    theirs = ManualClock(ours() + ahead)
    health = doctor(Server(list, theirs), ours)
    assert health.skew == ahead
    assert health.warned
    assert said in health.findings[-1].what


def test_slow_answer_is_not_taken_for_a_wrong_clock() -> None:
    """What the round trip took is granted to the clocks: the answer was made somewhere within."""
    theirs = ManualClock()
    ours = iter([theirs(), theirs() + 8000])
    health = doctor(Server(list, theirs), lambda: next(ours))
    assert (health.skew, health.warned) == (-4000, False)


def test_rehearsal_says_what_is_missing_and_changes_nothing() -> None:
    """A rehearsed migration reports findings that name the command, or the refusal, and migrates nothing."""
    finding = Finding("refusal", "schema 1 is older than 2", "run `oncekey migrate`")
    other = Finding("warning", "slow disk", "buy another")
    assert migrate(Server(lambda: [finding, other]), rehearse=True).done == ["schema 1 is older than 2"]
    assert migrate(Server(lambda: [other]), rehearse=True).done == []
    assert migrate(Server(raising(SchemaMissing("no tables"))), rehearse=True).done == ["no tables"]


def test_stats_count_by_state() -> None:
    """Numbers by the public words."""
    store = MemoryStore(ManualClock())
    fill(store)
    assert stats(store) == {"in_progress": 2, "unknown": 1, "failed_retryable": 1, "completed": 2}
