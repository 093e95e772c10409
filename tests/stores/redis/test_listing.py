"""Whatever is open is listed, from the instant it is written until it ends; news is published only when asked for."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

import pytest
import redis

from oncekey.core.commands import DONE, Swap
from oncekey.core.record import OPEN, Record, State, replace
from oncekey.core.transitions import Aftermath, Facts, moved
from oncekey.errors import ConfigurationError, StoreUnavailable
from oncekey.stores.contract import MISSED, Store, Wanted
from oncekey.stores.redis import open_async, open_sync
from tests.infra import RedisServer
from tests.stores.redis.proxy import Proxy
from tests.stores.redis.stand import HOUR, a_claim, record, settlement, won

LISTED = (*OPEN, State.FAILED_RETRYABLE)


def listed(store: Store, states: Sequence[State] = LISTED, limit: int = 3) -> list[Record]:
    """All pages of a listing."""
    page = store.scan(states, limit=limit)
    found = list(page.records)
    while page.after:
        page = store.scan(states, limit=limit, after=page.after)
        assert len(page.records) <= limit
        found += page.records
    return found


def test_a_claim_is_listed_or_not_made(store: Store, client: redis.Redis) -> None:
    """A claim that cannot be listed is not written: the script lists first, and stops there."""
    client.set("{ok}#in_progress", "in the way")
    claim = a_claim()
    with pytest.raises(StoreUnavailable, match="another program uses our keys"):
        store.claim([claim])
    assert store.get(claim.id) is None


def test_open_records_stay_listed_through_their_lives(any_store: Store) -> None:
    """In each state that is not final a record is on exactly one list; completed it is on none."""
    claims = [won(any_store) for _ in range(7)]
    for claim, target in zip(claims, (State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN), strict=False):
        any_store.settle([settlement(claim, target)])
    assert {one.id for one in listed(any_store)} == {claim.id for claim in claims[1:]}
    assert len(listed(any_store)) == 6
    any_store.settle([settlement(claims[2])])
    assert claims[2].id not in {one.id for one in listed(any_store)}
    assert {**any_store.stats()}.items() >= {"in_progress": 4, "unknown": 0, "failed_retryable": 1}.items()


def test_a_swap_moves_a_record_to_its_list(store: Store) -> None:
    """A lapse, as any swap, takes the record from one list to the other in the same step."""
    claim = won(store)
    old = record(store, claim.id)
    new = moved("override_retryable", old, Facts(old.claimed_at, reason="r"), Aftermath(keep_for=HOUR))
    assert new is not None
    assert store.swap(Swap(old, new)) == DONE
    assert listed(store, (State.EXECUTING,)) == []
    assert listed(store, (State.FAILED_RETRYABLE,)) == [record(store, claim.id)]


def test_pages_hold_together_where_instants_are_equal(store: Store) -> None:
    """Records of one batch end in the same millisecond: pages of any size show each exactly once."""
    claims = [a_claim() for _ in range(130)]
    store.claim(claims)
    for limit in (1, 7, 100):
        assert sorted(one.id for one in listed(store, limit=limit)) == sorted(claim.id for claim in claims)


def test_all_states_are_paged_by_scan(any_store: Store) -> None:
    """With completed records asked for, pages of any size show each record exactly once."""
    claims = [a_claim() for _ in range(60)]
    any_store.claim(claims)
    any_store.settle([settlement(claim) for claim in claims[:40]])
    for limit in (1, 7, 100):
        assert sorted(one.id for one in listed(any_store, tuple(State), limit)) == sorted(c.id for c in claims)


def test_a_strange_cursor_is_refused() -> None:
    """A cursor that no page gave is refused, not guessed at."""
    for states in (LISTED, tuple(State)):
        store = open_sync("redis://127.0.0.1:1/0", store_for=1.0)
        steps = store.plan.scan(Wanted(tuple(states)), "nonsense", 10)
        next(steps)
        with pytest.raises(ConfigurationError, match="no cursor"):
            steps.send([[b"1", b"2"]])


def test_what_is_gone_is_taken_off_the_list(store: Store, client: redis.Redis) -> None:
    """A record deleted by hand is forgotten by the next listing, and hides no other."""
    gone, there = won(store), won(store)
    client.delete(b"{ok}:" + gone.id)
    assert [one.id for one in listed(store)] == [there.id]
    assert client.zcard("{ok}#in_progress") == 1


def test_an_unreadable_record_hides_no_other(
    store: Store, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """A listing leaves out a record that it cannot read, says so in the log, and shows the others."""
    bad, good = won(store), won(store)
    client.set(b"{ok}:" + bad.id, b"\x09 of the future")
    assert [one.id for one in listed(store)] == [good.id]
    assert bad.id.hex()[:12] in caplog.text


def test_purge_forgets_failures_that_the_server_deleted(store: Store, client: redis.Redis) -> None:
    """The server deletes an expired failure by itself; purge takes it off the list."""
    claim = won(store)
    store.settle([settlement(claim, State.FAILED_RETRYABLE)])
    client.delete(b"{ok}:" + claim.id)
    client.zadd("{ok}#failed", {b"{ok}:" + claim.id: 1})
    assert store.purge() == (1, False)
    assert client.exists("{ok}#failed") == 0


def test_purge_leaves_what_still_stands(store: Store, client: redis.Redis) -> None:
    """A failure whose record is still there stays listed, whatever its place on the list says."""
    claim = won(store)
    store.settle([settlement(claim, State.FAILED_RETRYABLE)])
    client.zadd("{ok}#failed", {b"{ok}:" + claim.id: 1})
    assert store.purge() == (0, False)
    assert [one.id for one in listed(store)] == [claim.id]


def test_open_records_have_no_expiry(any_url: str, any_store: Store) -> None:
    """The server never deletes an open record by itself, whatever retention was given."""
    claims = [won(any_store), won(any_store)]
    any_store.settle([settlement(claims[0], State.UNKNOWN)])
    seen = record(any_store, claims[1].id)
    any_store.swap(Swap(seen, replace(seen, version=2, expires_at=1)))
    with redis.Redis.from_url(any_url.partition("?")[0]) as client:
        assert {client.pttl(key) for key in client.scan_iter()} == {-1}


def test_only_awaited_records_are_published(store: Store, client: redis.Redis) -> None:
    """A settlement is published if somebody watches the record, and not otherwise."""
    ears = client.pubsub(ignore_subscribe_messages=True)
    ears.subscribe("{ok}#told")
    ears.get_message(timeout=5)
    silent, awaited = won(store), won(store)
    store.watch(awaited.id)
    store.settle([settlement(silent), settlement(awaited)])
    heard = ears.get_message(timeout=5)
    assert heard is not None
    assert heard["data"] == b"{ok}:" + awaited.id
    client.publish("{ok}#told", "last")
    last = ears.get_message(timeout=5)
    assert last is not None
    assert last["data"] == b"last"
    ears.close()


async def test_listeners_of_both_colours_are_told(redis_url: str, store: Store) -> None:
    """Who listens under threads and who listens under asyncio hear of the same record."""
    other = open_async(redis_url, store_for=5.0)
    told: queue.Queue[bytes] = queue.Queue()
    listeners = [store.listen(told.put), await other.listen(told.put)]
    claim = won(store)
    await other.watch(claim.id)
    store.settle([settlement(claim)])
    assert [told.get(timeout=10), told.get(timeout=10)] == [claim.id, claim.id]
    for listener in listeners:
        listener.close()
    await other.close()


def test_a_listener_comes_back(redis_server: RedisServer, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """It subscribes anew, says that news may have been missed, and survives what its own callback throws."""
    told: queue.Queue[bytes] = queue.Queue()

    def tell(id_: bytes) -> None:
        told.put(id_)
        raise ZeroDivisionError

    with Proxy(redis_server.port) as proxy, redis.Redis.from_url(redis_server.url) as client:
        away = open_sync(proxy.url, store_for=5.0)
        listener = away.listen(tell)
        proxy.cut()
        while told.qsize() < 2:
            client.publish("{ok}#told", b"{ok}:again")
        assert [told.get(), told.get()] == [MISSED, b"again"]
        listener.close()
    assert "broke" in caplog.text


def test_a_listener_leaves_a_silent_server(redis_server: RedisServer, redis_url: str) -> None:
    """A listener asks a server that has been silent, and connects anew when there is no answer either."""
    told: queue.Queue[bytes] = queue.Queue()
    with Proxy(redis_server.port) as proxy, redis.Redis.from_url(redis_url) as client:
        listener = open_sync(proxy.url, store_for=0.2).listen(told.put)
        proxy.hold_replies()
        while proxy.connections < 2:
            threading.Event().wait(0.01)
        proxy.let_go()
        while told.empty():
            client.publish("{ok}#told", b"{ok}:again")
        listener.close()


def test_listening_needs_a_server() -> None:
    """A subscription that cannot be made is an error at once, not silence."""
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        open_sync("redis://127.0.0.1:1/0", store_for=1.0).listen(print)
