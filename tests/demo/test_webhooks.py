"""The provider's own word: a signed message settles what nobody could tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oncekey.core.record import State
from oncekey.demo.ledger import Sent
from oncekey.demo.provider import Provider
from oncekey.demo.webhooks import RECEIVED_AT, SENT_BY, signed
from oncekey.errors import OutcomeUnknown
from oncekey.operations import history
from oncekey.stores.open import open_store
from oncekey.telemetry.metrics import RESOLVED
from tests.demo.server import KINDS, Ask, ask, fresh
from tests.demo.test_resolving import answer
from tests.demo.test_worker import Served, settings


def told(ref: str) -> Ask:
    """Have the provider tell."""
    return Ask("POST", f"{SENT_BY}?ref={ref}", {}, b"")


@pytest.mark.parametrize("api", KINDS)
async def test_a_webhook_settles_a_charge_of_a_lost_worker(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was told that it landed; the provider's message is, once, and the retry gets the charge."""
    ref, act = fresh("ref"), Provider.act
    served, order = Served(settings(tmp_path)), ask(api, fresh(), f"probe:ref={ref}")

    async def lost(self: Provider, *args: Any) -> dict[str, Any]:
        await act(self, *args)
        raise OutcomeUnknown("the worker is gone")

    async with served.living():
        monkeypatch.setattr(Provider, "act", lost)
        await served.request(order)
        first, again = (await answer(served, told(ref)))[1], (await answer(served, told(ref)))[1]
        assert (first["answer"], again["answer"]) == ({"outcome": "settled"}, {"outcome": "known"})
        assert (await answer(served, order))[0] == KINDS[api].success[1]
        assert served.worker.demo.ledger.executions(ref) == 1
        assert served.worker.demo.counters.totals()[RESOLVED] == 1
        store = open_store(settings(tmp_path).store)
        [record] = store.scan((State.COMPLETED,)).records
        store.close()
        assert [(line.by, "webhook msg_" in line.why) for line in history(record)] == [("webhook", True)]


async def test_only_the_provider_is_believed(tmp_path: Path) -> None:
    """Without its signature, with another's, or for a ref that it does not know, nothing is settled."""
    served = Served(settings(tmp_path))
    forged = signed(b"another secret", Sent("00" * 20 + ".1", 1, "ord_1", "{}"))
    headers = {name.decode(): value.decode() for name, value in forged.headers}
    async with served.living():
        for request, status in (
            (Ask("POST", RECEIVED_AT, {}, b"{}"), 401),
            (Ask("POST", RECEIVED_AT, headers, forged.body), 401),
            (told("nobody"), 404),
            (Ask("POST", SENT_BY, {}, b""), 400),
            (Ask("GET", SENT_BY, {}, b""), 405),
        ):
            assert (await answer(served, request))[0] == status


async def test_a_worker_at_work_has_the_first_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that comes before our own answer is asked to come again."""
    ref, act = fresh("ref"), Provider.act
    served, order = Served(settings(tmp_path)), ask("ietf", fresh(), f"probe:ref={ref}")
    heard: list[Any] = []

    async def telling(self: Provider, *args: Any) -> dict[str, Any]:
        done = await act(self, *args)
        heard.append((await answer(served, told(ref)))[1]["status"])
        return done

    async with served.living():
        monkeypatch.setattr(Provider, "act", telling)
        assert (await answer(served, order))[0] == 201
        assert heard == [503]
        assert json.loads((await served.request(told(ref)))[1]["body"])["answer"] == {"outcome": "known"}
