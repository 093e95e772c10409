from __future__ import annotations

import time
from typing import Any

import pytest

from oncekey import ConfigurationError, Policy, by
from oncekey.http.gate import first_sent
from oncekey.http.messages import Request
from tests.adapters.asgi_kit import Guarded, Shop, call

# ---- whose key, which path, how old ------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", ["", 7, b"alice", True, ["alice"]])
async def test_a_scope_that_names_nobody_refuses_the_request(caller: Any) -> None:
    """An empty name is no caller, and what is no text is a fault of the set-up: nothing runs for either."""
    shop = Shop()
    refused = await call(Guarded(shop, scope=by(lambda request: caller)))
    assert (refused.status, shop.effects) == (401 if caller == "" else 503, [])


async def test_a_scope_that_fails_runs_nothing() -> None:
    """Its fault goes to the server's log."""
    shop = Shop()

    def broken(request: Any) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await call(Guarded(shop, scope=broken))
    assert shop.effects == []


def test_a_scope_that_must_be_awaited_is_refused_with_what_to_write() -> None:
    """Its coroutine would be everybody's name, or nobody's."""

    async def who(request: Any) -> str:
        return "alice"

    with pytest.raises(ConfigurationError, match="def"):
        Guarded(Shop(), scope=by(who))  # type: ignore[arg-type]


@pytest.mark.parametrize("paths", [[7], [None], b"/pay", [b"/pay"], 7])
def test_paths_that_are_no_paths_are_refused(paths: Any) -> None:
    """Whatever their type."""
    with pytest.raises(ConfigurationError, match="paths="):
        Guarded(Shop(), paths=paths)


def test_a_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-0000` says that the zone is not known; the server's own zone has nothing to do with it."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        request = Request("POST", "/", b"", [(b"idempotency-first-sent", b"Thu, 01 Jan 1970 00:00:10 -0000")], b"")
        assert first_sent(request) == 10_000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("date", [b"", b"\xff", b"0", b"Mon, 99 Foo 99999 99:99:99 +9999", b"(" * 900])
def test_no_date_is_no_fault(date: bytes) -> None:
    """Whatever a client writes there."""
    assert first_sent(Request("POST", "/", b"", [(b"idempotency-first-sent", date)], b"")) is None


# ---- policies that make no sense ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lease_for": "30"}, "lease_for='30'"),
        ({"lease_for": None}, "lease_for=None"),
        ({"lease_for": True}, "lease_for=True"),
        ({"keep_for": b"1"}, "keep_for="),
        ({"attempts": 2.5}, "attempts=2.5"),
        ({"waiting": 0.5}, "waiting=0.5"),
        ({"max_body": 1.5}, "max_body=1.5"),
        ({"latch": "no"}, "latch='no'"),
        ({"take_over": "yes", "guarantee": "transactional"}, "take_over='yes'"),
        ({"guarantee": ["transactional"]}, "guarantee="),
        ({"keep_for": 60, "retry_after_for": 61}, "retry_after_for=61"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_its_name(wrong: Any, said: str) -> None:
    """A wrong type is said at construction too, not at the first request."""
    with pytest.raises(ConfigurationError, match=said):
        Policy(**wrong)
