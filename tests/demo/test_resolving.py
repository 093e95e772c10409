"""The demo's resolvers, one for each API: what was done is found out, and what was not done cannot come any more."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncekey.core.record import State
from oncekey.demo.provider import Provider
from oncekey.engine.sealing import Sealer
from oncekey.errors import NotExecuted, OutcomeUnknown
from oncekey.operations import Desk, Signature, history
from oncekey.stores.open import open_store
from tests.demo.server import KINDS, Ask, ask, fresh
from tests.demo.test_worker import Served, settings

Act = Callable[..., Awaitable[dict[str, Any]]]


async def answer(served: Served, request: Ask) -> tuple[int, Any]:
    """Status and body."""
    start, body = await served.request(request)
    return start["status"], json.loads(body["body"])


async def asked_now(served: Served, folder: Path) -> None:
    """Have the reconciler ask about everything at once."""
    store = open_store(settings(folder).store)
    page = store.scan((State.UNKNOWN,))
    for record in page.records:
        seen = store.get(record.id)
        assert seen is not None
        Desk(store, Sealer()).ask_again(seen, Signature("test", "it is time"))
    store.close()
    await served.worker.demo.reconciler.run_once()


@pytest.mark.parametrize("api", KINDS)
async def test_a_charge_that_landed_is_answered_in_the_shape_of_its_api(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker was lost after the provider had acted: the retry gets what it would have told, and nothing runs."""
    ref, request = fresh("ref"), fresh()
    served, act = Served(settings(tmp_path)), Provider.act

    async def lost(self: Provider, *args: Any) -> dict[str, Any]:
        await act(self, *args)
        raise OutcomeUnknown("the worker is gone")

    async with served.living():
        usual = await answer(served, ask(api, fresh(), ""))
        monkeypatch.setattr(Provider, "act", lost)
        order = ask(api, request, f"probe:ref={ref}")
        await served.request(order)
        await asked_now(served, tmp_path)
        replayed = await answer(served, order)
        assert replayed[0] == KINDS[api].success[1]
        assert set(replayed[1]) == set(usual[1])
        found = replayed[1]
        for name in KINDS[api].id:
            found = found[name]
        [run] = [run for run in served.worker.demo.ledger.recent(9)[1] if run.ref == ref]
        assert found == run.object


@pytest.mark.parametrize("api", KINDS)
async def test_an_attempt_that_was_cancelled_cannot_land_any_more(
    api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request was still under way: it is refused when it arrives, the retry runs, and the provider acts once."""
    ref, request = fresh("ref"), fresh()
    served, act = Served(settings(tmp_path)), Provider.act
    under_way: list[Callable[[], Awaitable[Any]]] = []

    async def slow(self: Provider, *args: Any) -> dict[str, Any]:
        under_way.append(lambda: act(self, *args))
        raise OutcomeUnknown("no answer in time")

    async with served.living():
        order = ask(api, request, f"probe:ref={ref}")
        monkeypatch.setattr(Provider, "act", slow)
        await served.request(order)
        await asked_now(served, tmp_path)
        with pytest.raises(NotExecuted):
            await under_way[0]()
        monkeypatch.setattr(Provider, "act", act)
        assert (await answer(served, order))[0] == KINDS[api].success[0]
        assert served.worker.demo.ledger.executions(ref) == 1
        store = open_store(settings(tmp_path).store)
        [record] = store.scan((State.COMPLETED,)).records
        store.close()
        assert [line.by for line in history(record)] == ["test", "reconciler"]
