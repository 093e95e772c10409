"""Connections break, replies get lost, callers are cancelled: no claim is doubled, no reply goes astray."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from oncekey.core.commands import DONE, Renewal, Won
from oncekey.core.record import Seen, State
from oncekey.errors import StoreUnavailable
from oncekey.stores.contract import Store
from oncekey.stores.planned import PlannedStore
from oncekey.stores.redis import open_async, open_sync
from tests.infra import RedisServer
from tests.stores.redis.proxy import Proxy
from tests.stores.redis.stand import HOUR, a_claim, record, settlement, won


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """A proxy before an empty Redis."""
    with Proxy(redis_server.port) as running:
        yield running


def test_a_lost_reply_is_recognised_as_our_own_claim(proxy: Proxy) -> None:
    """A claim whose reply was lost after the server had done it is asked again, and found under our own token."""
    store = open_sync(proxy.url, store_for=5.0)
    won(store)  # so that the next one finds an open connection
    proxy.lose_replies()
    claim = a_claim()
    [found] = store.claim([claim])
    assert isinstance(found, Seen)
    assert found.record.token == claim.token
    assert proxy.connections == 2
    store.close()


async def test_a_lost_reply_is_recognised_under_asyncio(proxy: Proxy) -> None:
    """The same, awaited; and a settlement whose reply was lost is done once."""
    store = open_async(proxy.url, store_for=5.0)
    await store.claim([a_claim()])
    claim = a_claim()
    proxy.lose_replies()
    [found] = await store.claim([claim])
    assert isinstance(found, Seen)
    assert found.record.token == claim.token
    proxy.lose_replies()
    assert await store.settle([settlement(claim)]) == [DONE]
    seen = await store.get(claim.id)
    assert seen is not None
    assert (seen.record.state, seen.record.version) == (State.COMPLETED, 2)
    await store.close()


def test_a_reply_that_stays_lost_is_unavailable(proxy: Proxy) -> None:
    """When the second try fails as well, nobody is told that the key is free: the store is unavailable."""
    store = open_sync(proxy.url, store_for=5.0)
    won(store)
    proxy.lose_replies(2)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.claim([a_claim()])
    store.close()


def test_connections_that_the_server_closed_are_replaced(store: Store, client: redis.Redis) -> None:
    """An idle connection that the server has closed costs nobody an error."""
    won(store)
    client.client_kill_filter(_type="normal", skipme=True)
    won(store)


async def test_connections_that_the_server_closed_are_replaced_under_asyncio(
    redis_url: str, client: redis.Redis
) -> None:
    """The same, awaited."""
    store = open_async(redis_url, store_for=5.0)
    await store.claim([a_claim()])
    client.client_kill_filter(_type="normal", skipme=True)
    assert isinstance((await store.claim([a_claim()]))[0], Won)
    await store.close()


def test_a_late_reply_reaches_nobody(proxy: Proxy) -> None:
    """After a time-out the connection is closed: the late reply is not taken for the answer to the next question."""
    store = open_sync(proxy.url, store_for=0.2)
    first, second = won(store), won(store)
    proxy.hold_replies()
    with pytest.raises(StoreUnavailable, match=r"did not answer within 0\.2 s"):
        store.get(first.id)
    proxy.let_go()
    assert record(store, second.id).token == second.token
    assert proxy.connections == 2
    store.close()


async def test_cancelled_callers_leave_no_reply_behind(redis_url: str) -> None:
    """Calls cancelled at any moment leave no reply to the next caller: everybody reads their own record."""
    store = open_async(f"{redis_url}?connections=4", store_for=5.0)
    claims = [a_claim() for _ in range(20)]
    await store.claim(claims)
    read = 0
    for turn in range(60):
        tasks = [asyncio.create_task(store.get(claim.id)) for claim in claims]
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        for task in random.Random(turn).sample(tasks, 8):
            task.cancel()
        for claim, found in zip(claims, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            if isinstance(found, Seen):
                assert found.record.token == claim.token
                read += 1
            else:
                assert isinstance(found, asyncio.CancelledError)
    assert read >= 60 * 12
    await store.close()


def test_scripts_come_back_after_a_flush(any_url: str, any_store: Store) -> None:
    """A server that has forgotten the scripts (restart, failover, SCRIPT FLUSH) is sent them again, unnoticed."""
    claim = won(any_store)
    with redis.Redis.from_url(any_url.partition("?")[0]) as client:
        client.script_flush()
    assert any_store.renew([Renewal(claim.id, claim.token, HOUR, 2 * HOUR)]) == [DONE]
    assert any_store.settle([settlement(claim)]) == [DONE]
    assert record(any_store, claim.id).outcome == b"answer"


def test_a_forked_child_opens_its_own_connections(store: Store) -> None:
    """After a fork parent and child talk to the server over connections of their own."""
    ours, theirs = won(store), won(store)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # ends it, should it wait for a reply that went to its parent
        os._exit(not all(record(store, theirs.id).token == theirs.token for _ in range(200)))
    assert all(record(store, ours.id).token == ours.token for _ in range(200))
    assert os.waitpid(child, 0)[1] == 0


def test_no_thread_of_a_forked_child_finds_its_parents_connections(
    store: PlannedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first request after a fork begins anew, the others do not take the process for one that has."""
    seen: list[int] = []
    wire: Any = store.wire

    def anew() -> Any:
        seen.append(wire._pid)
        return deque()

    monkeypatch.setattr("oncekey.stores.redis.wire.deque", anew)
    wire._pid = -1
    won(store)
    assert seen == [-1]


def test_each_event_loop_has_its_own_connections(redis_url: str) -> None:
    """A store that was used on one event loop works on the next one."""
    store = open_async(redis_url, store_for=5.0)

    async def once() -> bool:
        [found] = await store.claim([a_claim()])
        await store.close()
        return isinstance(found, Won)

    assert asyncio.run(once())
    assert asyncio.run(once())


def test_connections_are_bounded(proxy: Proxy) -> None:
    """However many threads ask, no more connections are opened than connections= allows."""
    store = open_sync(f"{proxy.url}?connections=3", store_for=10.0)
    claim = won(store)
    proxy.hold_replies()
    threading.Timer(0.1, proxy.let_go).start()
    threads = [threading.Thread(target=store.get, args=(claim.id,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert proxy.connections == 3
    store.close()


def test_one_bad_key_does_not_stop_its_neighbours(store: Store, client: redis.Redis) -> None:
    """Where another program's key stands in the way, its item is refused and its neighbours are written."""
    good, bad = a_claim(), a_claim()
    client.lpush(b"{ok}:" + bad.id, "not a record")
    with pytest.raises(StoreUnavailable, match="another program uses our keys"):
        store.claim([bad, good])
    assert record(store, good.id).token == good.token


@pytest.mark.parametrize(
    "id_", [b"{a}{b}" * 3, b"\r\n$5\r\n*1\r\n\x00\xff", bytes(range(0, 200, 10)), b"*?[a-z]\\{ok}"]
)
def test_ids_may_hold_any_bytes(any_store: Store, id_: bytes) -> None:
    """Braces, line ends and wildcards in an id are bytes like others."""
    claim = won(any_store, id=id_)
    assert [one.id for one in any_store.scan(list(State)).records] == [id_]
    assert any_store.settle([settlement(claim)]) == [DONE]


async def test_a_reply_may_come_in_pieces(proxy: Proxy) -> None:
    """Byte by byte, a reply is the same reply."""
    store = open_async(proxy.url, store_for=5.0)
    await store.claim([a_claim()])
    proxy.in_pieces = True
    claims = [a_claim() for _ in range(3)]
    assert await store.claim(claims) == [Won(HOUR)] * 3
    assert [type(found) for found in await store.claim(claims)] == [Seen] * 3
    assert proxy.connections == 1
    await store.close()


@pytest.mark.parametrize("words", [b"+OK\r\n", b"*1\r\n", b"no reply at all\r\n"])
async def test_a_server_that_speaks_unasked_is_hung_up_on(proxy: Proxy, words: bytes) -> None:
    """A reply too many would be taken for the next request's: that connection is not used again."""
    store = open_async(proxy.url, store_for=5.0)
    await store.claim([a_claim()])
    proxy.say(words)
    await asyncio.sleep(0.05)
    assert await store.claim([a_claim()]) == [Won(HOUR)]
    assert proxy.connections == 2
    await store.close()


async def test_a_reply_that_is_none_is_no_answer(proxy: Proxy) -> None:
    """What cannot be read decides nothing: the store is unavailable, and the next call starts anew."""
    store = open_async(proxy.url, store_for=5.0)
    await store.claim([a_claim()])
    proxy.hold_replies()
    asked = asyncio.ensure_future(store.claim([a_claim()]))
    await asyncio.sleep(0.05)
    proxy.say(b"what?\r\n")
    with pytest.raises(StoreUnavailable):
        await asked
    proxy.let_go()
    assert await store.claim([a_claim()]) == [Won(HOUR)]
    await store.close()
