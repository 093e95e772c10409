"""Whether records are safe on a server is looked at, and said with what to change; trouble is a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from oncekey.core.commands import DONE
from oncekey.core.record import State
from oncekey.errors import StoreUnavailable
from oncekey.stores.contract import Finding, Store
from oncekey.stores.redis import open_sync, server
from tests.conftest import started
from tests.infra import Redis62Server, RedisServer, ValkeyServer
from tests.stores.redis.stand import a_claim, record, settlement, won

SAFE = {"redis_version": "7.0.15", "role": "master", "maxmemory_policy": "noeviction", "aof_enabled": "1"}


def levels(findings: list[Finding]) -> set[str]:
    """Which levels occur."""
    return {finding.level for finding in findings}


def test_a_server_at_ease_is_well() -> None:
    """Nothing is said against a primary that never evicts and writes an append-only file."""
    assert levels(server.findings(SAFE, {"appendfsync": "always"})) == {"ok"}


@pytest.mark.parametrize(
    ("change", "level", "said"),
    [
        ({"redis_version": "6.0.16"}, "refusal", "too old"),
        ({"role": "slave"}, "refusal", "replica"),
        ({"cluster_enabled": "1"}, "refusal", "Cluster"),
        ({"maxmemory_policy": "volatile-lru"}, "refusal", "volatile-lru"),
        ({"maxmemory_policy": "allkeys-random"}, "refusal", "allkeys-random"),
        ({"aof_enabled": "0"}, "warning", "append-only file is off"),
        ({"connected_slaves": "1"}, "warning", "failover"),
    ],
)
def test_what_could_lose_records_is_found(change: dict[str, str], level: str, said: str) -> None:
    """Each setting that could lose records has its finding, with what to change."""
    [found] = [finding for finding in server.findings(SAFE | change, {}) if finding.level != "ok"]
    assert found.level == level
    assert said in found.what
    assert found.fix


def test_fsync_of_the_append_only_file_is_told() -> None:
    """Without any fsync a warning is given; with one each second the remaining gap is named."""
    assert "warning" in levels(server.findings(SAFE, {"appendfsync": "no"}))
    [found] = [one for one in server.findings(SAFE, {"appendfsync": "everysec"}) if "second" in one.what]
    assert found.level == "ok"


@pytest.mark.parametrize("make", [RedisServer, Redis62Server, ValkeyServer])
def test_an_evicting_server_is_refused(make: Callable[..., RedisServer]) -> None:
    """A real server with an eviction policy is refused, even where CONFIG is forbidden."""
    with started(lambda: make(maxmemory_policy="allkeys-lru")) as running:
        with redis.Redis.from_url(running.url) as client:
            client.execute_command("ACL", "SETUSER", "default", "-config")
        found = open_sync(running.url, store_for=5.0).check()
    assert "allkeys-lru" in next(finding.what for finding in found if finding.level == "refusal")
    assert "warning" in levels(found)


def test_a_real_replica_is_refused(redis_server: RedisServer) -> None:
    """A read-only replica is refused at the start, and unavailable at run time."""
    with started(lambda: RedisServer(replicaof=f"127.0.0.1 {redis_server.port}")) as replica:
        store = open_sync(replica.url, store_for=5.0)
        assert "replica" in next(finding.what for finding in store.check() if finding.level == "refusal")
        with pytest.raises(StoreUnavailable, match="read-only replica: let store= name the primary"):
            store.claim([a_claim()])


def test_a_full_server_is_unavailable() -> None:
    """Out of memory is a refusal of the claim, never a lost record: what was claimed before is still there."""
    with started(RedisServer) as running:
        store = open_sync(running.url, store_for=5.0)
        first = won(store)
        with redis.Redis.from_url(running.url) as client:
            client.config_set("maxmemory", 1)
        with pytest.raises(StoreUnavailable, match="out of memory"):
            store.claim([a_claim()])
        assert record(store, first.id).token == first.token


def test_a_wrong_password_is_a_sentence() -> None:
    """Whoever is not let in is told so, without the password."""
    with started(lambda: RedisServer(requirepass="right")) as running:
        for user in ("", ":hidden@", "somebody:hidden@"):
            store = open_sync(f"redis://{user}127.0.0.1:{running.port}/0", store_for=5.0)
            with pytest.raises(StoreUnavailable, match="user") as refused:
                store.claim([a_claim()])
            assert "hidden" not in str(refused.value)
        won(open_sync(f"redis://:right@127.0.0.1:{running.port}/0", store_for=5.0))


def test_a_restricted_user_works_or_is_told(redis_server: RedisServer, client: redis.Redis) -> None:
    """A user without dangerous commands can do all verbs; check says what it could not look at."""
    client.execute_command(
        "ACL", "SETUSER", "app", "reset", "on", ">pw", "~{ok}*", "&{ok}*", "+@all", "-@dangerous", "-@admin"
    )
    store = open_sync(f"redis://app:pw@127.0.0.1:{redis_server.port}/0", store_for=5.0)
    claim = won(store)
    store.watch(claim.id)
    assert store.settle([settlement(claim)]) == [DONE]
    assert [one.id for one in store.scan(list(State)).records] == [claim.id]
    assert store.purge().deleted == 0
    assert store.stats()["in_progress"] == 0
    assert levels(store.check()) == {"warning"}
    client.execute_command("ACL", "SETUSER", "app", "-evalsha", "-eval")
    with pytest.raises(StoreUnavailable, match="may not do this"):
        store.get(claim.id)
    client.execute_command("ACL", "DELUSER", "app")


def test_an_absent_server_is_unavailable() -> None:
    """A server that is not there is named, with a question about store=."""
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached; is it running"):
        open_sync("redis://127.0.0.1:1/0", store_for=1.0).claim([a_claim()])


@pytest.mark.parametrize("make", [RedisServer, Redis62Server, ValkeyServer])
def test_claims_survive_a_kill_where_the_file_is_on(make: Callable[..., RedisServer]) -> None:
    """With the append-only file synced on every write, a killed server still knows each claim, answer and list."""
    with started(lambda: make(appendonly="yes", appendfsync="always")) as running:
        store = open_sync(running.url, store_for=10.0)
        claims = [won(store) for _ in range(20)]
        store.settle([settlement(claim) for claim in claims[:10]])
        running.kill()
        running.start()
        assert [record(store, claim.id).outcome for claim in claims[:10]] == [b"answer"] * 10
        assert {one.id for one in store.scan([State.EXECUTING]).records} == {claim.id for claim in claims[10:]}
        store.close()


def test_figures_name_server_and_memory(any_store: Store) -> None:
    """The figures count open records by state, and tell server, memory and persistence."""
    won(any_store)
    figures = any_store.stats()
    assert figures["in_progress"] == 1
    assert str(figures["server"]).startswith(("Redis ", "Valkey "))
    assert int(figures["memory"]) > 0
    assert figures["persistence"] == "snapshots at most"
