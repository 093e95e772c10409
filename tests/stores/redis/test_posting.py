"""Batches that are posted: without a task, answered in the socket's callback, and as safe as any."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from oncekey.core.commands import DONE, Won
from oncekey.core.record import Seen, State
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.tuning import Tuning
from oncekey.errors import RecordUnreadable, StoreUnavailable
from oncekey.stores.posting import PostingStore
from oncekey.stores.redis import open_async
from tests.infra import RedisServer
from tests.stores.redis.proxy import Proxy
from tests.stores.redis.stand import a_claim, settlement


@pytest.fixture
def proxy(redis_server: RedisServer, redis_url: str) -> Iterator[Proxy]:
    """A proxy before an empty Redis."""
    with Proxy(redis_server.port) as running:
        yield running


async def opened(url: str, store_for: float = 5.0) -> PostingStore:
    """A store with an open connection that lies idle."""
    store = open_async(url, store_for=store_for)
    await store.claim([a_claim()])
    return store


async def told(post: Any, *many: Any) -> Any:
    """What comes back for a batch that was posted."""
    answer = asyncio.get_running_loop().create_future()
    assert post(many, answer.set_result)
    return await asyncio.wait_for(answer, 10)


async def test_claims_and_outcomes_are_answered(redis_url: str) -> None:
    """As by the verbs; the connection is free again before anybody is told."""
    store = await opened(f"{redis_url}?connections=1")
    claims = [a_claim() for _ in range(3)]
    assert [type(answer) for answer in await told(store.post_claims, *claims)] == [Won] * 3
    [found] = await told(store.post_claims, claims[0])
    assert isinstance(found, Seen)
    assert await told(store.post_settlements, *map(settlement, claims)) == [DONE] * 3
    await store.close()


async def test_without_an_open_connection_nothing_is_posted(redis_url: str) -> None:
    """None was opened yet, or the only one is in use: whoever asks has to wait, and does so elsewhere."""
    store = open_async(f"{redis_url}?connections=1", store_for=5.0)
    claim = a_claim()
    assert not store.post_claims([claim], print)
    await store.claim([claim])
    ended = asyncio.get_running_loop().create_future()
    assert store.post_claims([a_claim()], ended.set_result)
    assert not store.post_claims([a_claim()], print)
    await ended
    await store.close()


async def test_a_connection_that_the_server_closed_is_passed_over(redis_url: str, client: redis.Redis) -> None:
    """It lay there idle, and is no place to post to."""
    store = await opened(redis_url)
    client.client_kill_filter(_type="normal", skipme=True)
    await asyncio.sleep(0.1)
    assert not store.post_claims([a_claim()], print)
    assert [type(answer) for answer in await store.claim([a_claim()])] == [Won]
    await store.close()


async def test_scripts_come_back_after_a_flush(redis_url: str, client: redis.Redis) -> None:
    """The conversation goes on in the callback."""
    store = await opened(redis_url)
    client.script_flush()
    assert [type(answer) for answer in await told(store.post_claims, a_claim(), a_claim())] == [Won] * 2
    await store.close()


async def test_a_late_reply_reaches_nobody(proxy: Proxy) -> None:
    """After a time-out the connection is closed, and its place is free."""
    store = await opened(f"{proxy.url}?connections=1", store_for=0.2)
    proxy.hold_replies()
    late = await told(store.post_claims, a_claim())
    assert isinstance(late, StoreUnavailable)
    assert "did not answer within 0.2 s" in str(late)
    proxy.let_go()
    claim = a_claim()
    await store.claim([claim])
    [found] = await told(store.post_claims, claim)
    assert found.record.token == claim.token
    assert proxy.connections == 2
    await store.close()


async def test_a_reply_that_was_lost_is_trouble(proxy: Proxy) -> None:
    """Nothing is known of the claim, and nothing is repeated here."""
    store = await opened(proxy.url)
    proxy.lose_replies()
    lost = await told(store.post_claims, a_claim())
    assert isinstance(lost, StoreUnavailable)
    assert "cannot be reached" in str(lost)
    await store.close()


async def test_a_record_that_cannot_be_read_is_told(redis_url: str, client: redis.Redis) -> None:
    """And the connection, whose reply was whole, is used on."""
    store = await opened(f"{redis_url}?connections=1")
    claim = a_claim()
    await store.claim([claim])
    [key] = [key for key in client.scan_iter() if key.endswith(claim.id)]
    client.setrange(key, 0, b"\x09")
    assert isinstance(await told(store.post_claims, claim), RecordUnreadable)
    assert [type(answer) for answer in await told(store.post_claims, a_claim())] == [Won]
    await store.close()


async def test_what_cannot_be_written_down_takes_no_connection(redis_url: str) -> None:
    """Whoever asked hears of it, and the only connection is free for the next one."""
    store = await opened(f"{redis_url}?connections=1")
    with pytest.raises(OverflowError):
        store.post_claims([a_claim()._replace(lease_for=1 << 60)], print)
    assert [type(answer) for answer in await told(store.post_claims, a_claim())] == [Won]
    await store.close()


async def test_an_engine_takes_a_lost_reply_for_its_own_claim(proxy: Proxy) -> None:
    """Posted, lost, asked again in the usual way, and found under its own token."""
    engine = AsyncEngine(proxy.url, Tuning(store_for=5.0))
    claims = engine._batched.claims
    await claims(a_claim())
    proxy.lose_replies()
    claim = a_claim()
    found = await claims(claim)
    assert isinstance(found, Seen)
    assert (found.record.token, claims.batches) == (claim.token, 2)
    await engine.close()


async def test_an_engine_writes_an_outcome_once_whose_reply_was_lost(proxy: Proxy) -> None:
    """The repetition is recognised by its token."""
    engine = AsyncEngine(proxy.url, Tuning(store_for=5.0))
    claim = a_claim()
    await engine._batched.claims(claim)
    proxy.lose_replies()
    assert await engine._batched.settlements(settlement(claim)) == DONE
    seen = await engine.store.get(claim.id)
    assert seen is not None
    assert (seen.record.state, seen.record.version) == (State.COMPLETED, 2)
    await engine.close()
