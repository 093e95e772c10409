"""The same on every store that processes share: what one process has noted, another one finds after kill -9."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from oncekey import SHARED, ConfigurationError, NotExecuted, OnceKeyMiddleware
from oncekey.core.journal import CallState
from oncekey.core.record import Record, State
from oncekey.engine.journals import journal_of
from oncekey.stores.open import open_store
from tests.adapters.asgi_kit import answer, call
from tests.latch.gateways import COLOURS, Colour, Gateway
from tests.latch.shop import GUARANTEES, POINTS, Shop, key, policy


def killed(colour: Colour, url: str, folder: Path) -> Shop:
    """A process with one request of each guarantee at each point, killed when all have got there."""
    ledger = folder / "ledger"
    command = [sys.executable, "-m", "tests.latch.shop", colour, url, str(ledger)]
    wanted = {key(guarantee, point) for guarantee in GUARANTEES for point in POINTS}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            reached = {process.stdout.readline().strip() for _ in wanted}
        finally:
            process.kill()
    assert reached == wanted
    return Shop(ledger, stops=False)


def later(gateway: Gateway, key: str) -> int:
    """What a retry gets once the lease is over."""
    end = time.monotonic() + 30
    while (got := gateway.ask(key))[2] == "in-progress" and time.monotonic() < end:
        time.sleep(0.02)
    return got[0]


@pytest.mark.parametrize("colour", COLOURS)
def test_killed_at_a_call(colour: Colour, store_url: str, tmp_path: Path) -> None:
    """Before it the retry runs; from then on nobody knows, or a later attempt goes on from the last step kept.

    The record of what is unknown names the calls to ask about.
    """
    shop = killed(colour, store_url, tmp_path)
    once, again = GUARANTEES
    with Gateway(colour, shop, store_url, policy=policy(once)) as gateway:
        assert {point: later(gateway, key(once, point)) for point in POINTS} == POINTS
        unknown = gateway.store.scan([State.UNKNOWN]).records
        opened = {record.label.key: journal_of(record, gateway.sealer).open_calls for record in unknown}
    with Gateway(colour, shop, store_url, policy=policy(again)) as gateway:
        assert {point: later(gateway, key(again, point)) for point in POINTS} == dict.fromkeys(POINTS, 201)

    sent = {name: shop.charges(name) for name in (key(one, point) for one in GUARANTEES for point in POINTS)}
    twice, never = key(again, "sent"), key(once, "inside")
    assert {name: len(keys) for name, keys in sent.items()} == dict.fromkeys(sent, 1) | {twice: 2, never: 0}
    assert len(set(sent[twice])) == 1

    for name in (never, key(once, "sent")):
        [call] = opened[name]
        assert (call.provider, call.target) == ("adyen", "POST https://psp.example/charges")
        assert call.key in (sent[name] or [call.key])
    assert opened[key(once, "kept")] == ()
    assert [call.step for call in opened[key(once, "after")]] == ["mail"]


@pytest.mark.parametrize("colour", COLOURS)
def test_calls_at_the_same_time_are_all_noted(colour: Colour, store_url: str) -> None:
    """No write overtakes another: the store's record names every call that is under way."""
    names = [f"mail-{number}" for number in range(12)]

    async def work(op: Any) -> None:
        async def one(name: str) -> None:
            async with op.external(name):
                await asyncio.sleep(0)

        def one_in_a_thread(name: str) -> None:
            with op._operation.external(name):
                pass

        if colour == "asgi":
            await asyncio.gather(*map(one, names))
        else:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(one_in_a_thread, names))
        record: Record = gateway.record
        seen.append((record.state, {call.step for call in journal_of(record, gateway.sealer).calls}))
        raise NotExecuted

    seen: list[Any] = []
    with Gateway(colour, work, store_url) as gateway:
        gateway.ask()
        assert seen == [(State.EXECUTING, set(names))]
        assert {call.state for call in gateway.journal.calls} == {CallState.RETURNED}


def test_what_stands_in_the_store_is_one_journal(store_url: str) -> None:
    """After an end without an answer the newer journal of the settlement is there, whole."""

    async def work(op: Any) -> None:
        await op.step("reserve", lambda: {"id": 7})
        async with op.external("charge"):
            raise NotExecuted

    with Gateway("wsgi", work, store_url) as gateway:
        gateway.ask()
        store = open_store(store_url)
        [record] = store.scan([State.FAILED_RETRYABLE]).records
        store.close()
        journal = journal_of(record, gateway.sealer)
        assert [(call.step, call.state) for call in journal.calls] == [("charge", CallState.NOT_EXECUTED)]
        assert [(step.name, step.result) for step in journal.steps] == [("reserve", b'{"id":7}')]


async def test_a_plain_function_of_an_asyncio_application_uses_it_from_its_thread(store_url: str) -> None:
    """Frameworks run plain functions in worker threads: their calls and steps go through the loop."""
    ran: list[str] = []

    def plain(op: Any) -> str:
        def charge() -> str:
            with op.external("charge") as call:
                ran.append(call.key)
            return "ch_1"

        op.begin()
        return str(op.step("charge", charge))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        borrowed = scope["oncekey"].from_thread()
        with pytest.raises(ConfigurationError, match="block the event loop"):
            plain(borrowed)
        assert await asyncio.to_thread(plain, borrowed) == "ch_1"
        if len(ran) == 1 and scope["oncekey"].attempt == 1:
            raise NotExecuted
        for message in answer(201, b"{}"):
            await send(message)

    guarded = OnceKeyMiddleware(app, store_url, scope=SHARED, policy=policy("at_most_once"))
    assert [(await call(guarded)).status for _ in range(2)] == [503, 201]
    assert len(ran) == 1
    await guarded.engine.close()
