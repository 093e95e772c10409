"""Batches that are posted: without a task, answered in the socket's callback, and as safe as any."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from oncekey.core.commands import DONE, Won
from oncekey.core.record import Seen
from oncekey.engine.aio import AsyncEngine
from oncekey.errors import OnceKeyError, RecordUnreadable, StoreUnavailable
from oncekey.stores.postgres import open_async
from oncekey.stores.posting import PostingStore
from tests.infra import PostgresServer
from tests.stores.postgres.conftest import Session
from tests.stores.postgres.items import INSERT, TABLE, claim, done, until_blocked
from tests.stores.postgres.test_lanes import SESSIONS


async def opened(url: str, store_for: float = 5.0) -> PostingStore:
    """A store with one lane, which lies idle."""
    store = open_async(f"{url}?oncekey_pool=1", store_for=store_for)
    await store.migrate()
    return store


async def told(post: Any, *many: Any) -> Any:
    """What comes back for a batch that was posted."""
    answer = asyncio.get_running_loop().create_future()
    assert post(many, answer.set_result)
    return await asyncio.wait_for(answer, 20)


async def test_claims_and_outcomes_are_answered(postgres_url: str) -> None:
    """As by the verbs; the lane is free again before anybody is told."""
    store = await opened(postgres_url)
    claims = [claim() for _ in range(3)]
    assert [type(answer) for answer in await told(store.post_claims, *claims)] == [Won] * 3
    [found] = await told(store.post_claims, claims[0])
    assert isinstance(found, Seen)
    assert await told(store.post_settlements, *map(done, claims)) == [DONE] * 3
    await store.close()


async def test_what_is_larger_than_the_buffers_arrives(postgres_url: str) -> None:
    """Writing waits for the socket too, and reading goes on meanwhile."""
    store = await opened(postgres_url)
    claims = [claim() for _ in range(20)]
    await store.claim(claims)
    large = [done(each)._replace(outcome=os.urandom(1 << 20)) for each in claims]
    assert await told(store.post_settlements, *large) == [DONE] * 20
    found = [await told(store.post_claims, each) for each in claims[:2]]
    assert [answer.record.outcome for [answer] in found] == [settlement.outcome for settlement in large[:2]]
    await store.close()


async def test_without_an_idle_lane_nothing_is_posted(postgres_url: str) -> None:
    """None was opened yet, or the only one is in use: whoever asks has to wait, and does so elsewhere."""
    store = open_async(f"{postgres_url}?oncekey_pool=1", store_for=5.0)
    assert not store.post_claims([claim()], print)
    await store.migrate()
    ended = asyncio.get_running_loop().create_future()
    assert store.post_claims([claim()], ended.set_result)
    assert not store.post_claims([claim()], print)
    await ended
    await store.close()


async def test_a_lane_that_the_server_has_closed_is_passed_over(postgres_url: str, watcher: Session) -> None:
    """It lay there idle, and is no place to post to."""
    store = await opened(postgres_url)
    [[pid]] = watcher.execute(SESSIONS).fetchall()
    watcher.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    assert not store.post_claims([claim()], print)
    assert isinstance((await store.claim([claim()]))[0], Won)
    await store.close()


async def test_a_lane_that_is_closed_under_way_is_trouble(
    postgres_url: str, session: Session, watcher: Session
) -> None:
    """Nothing is known of the claim, and nothing is repeated here."""
    store = await opened(postgres_url)
    held = claim()
    session.execute(INSERT, (held.id,))
    asked = asyncio.create_task(told(store.post_claims, held))
    await asyncio.to_thread(until_blocked, watcher)
    [[pid]] = watcher.execute(SESSIONS).fetchall()
    watcher.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    assert isinstance(await asked, StoreUnavailable)
    assert isinstance((await store.claim([claim()]))[0], Won)
    await store.close()


async def test_a_silent_server_is_given_up_in_time() -> None:
    """The lane is dropped with its late answer, and its place is free."""
    with PostgresServer() as server:
        store = await opened(server.url, store_for=1)
        server.pause()
        late = await told(store.post_claims, claim())
        assert isinstance(late, StoreUnavailable)
        assert "within the time budget" in str(late)
        server.resume()
        wanted = claim()
        await store.claim([wanted])
        [found] = await told(store.post_claims, wanted)
        assert found.record.token == wanted.token
        await store.close()


async def test_what_is_given_up_while_it_is_written_leaves_nothing_with_the_loop() -> None:
    """The number of its socket is soon that of another one, whose readiness is nobody's business here."""
    with PostgresServer() as server:
        store = await opened(server.url, store_for=1)
        [lane] = store.wire._pool().idle._lanes  # type: ignore[attr-defined]
        fileno, large = lane.fileno, [done(claim(), os.urandom(1 << 20)) for _ in range(20)]
        server.pause()
        assert isinstance(await told(store.post_settlements, *large), StoreUnavailable)
        loop = asyncio.get_running_loop()
        assert (loop.remove_reader(fileno), loop.remove_writer(fileno)) == (False, False)
        server.resume()
        await store.close()


async def test_a_record_that_cannot_be_read_is_told(postgres_url: str, session: Session) -> None:
    """And the lane, whose answers were all read, is used on."""
    store = await opened(postgres_url)
    strange = claim()
    await store.claim([strange])
    session.execute(f"UPDATE {TABLE} SET format = 9 WHERE id = %s".encode(), (strange.id,))
    session.commit()
    assert isinstance(await told(store.post_claims, strange), RecordUnreadable)
    assert isinstance((await told(store.post_claims, claim()))[0], Won)
    await store.close()


async def test_one_record_that_cannot_be_read_fails_alone(postgres_url: str, session: Session) -> None:
    """Its neighbours in the batch are asked for again."""
    engine = AsyncEngine(postgres_url)
    await engine.store.migrate()
    claims = [claim() for _ in range(5)]
    await engine.store.claim(claims[2:3])
    session.execute(f"UPDATE {TABLE} SET format = 9 WHERE id = %s".encode(), (claims[2].id,))
    session.commit()
    answers = await asyncio.gather(*map(engine._batched.claims, claims), return_exceptions=True)
    assert isinstance(answers.pop(2), RecordUnreadable)
    # Those that the failed batch has made are found again by their tokens.
    for answer, mine in zip(answers, [*claims[:2], *claims[3:]], strict=True):
        assert isinstance(answer, Won) or (isinstance(answer, Seen) and answer.record.token == mine.token)
    await engine.close()


async def test_without_its_tables_the_sentence_says_what_to_run(postgres_url: str) -> None:
    """Posted or not."""
    store = open_async(f"{postgres_url}?oncekey_pool=1", store_for=5.0)
    with pytest.raises(OnceKeyError, match="oncekey migrate"):
        await store.claim([claim()])
    missing = await told(store.post_claims, claim())
    assert isinstance(missing, OnceKeyError)
    assert "oncekey migrate" in str(missing)
    await store.close()
