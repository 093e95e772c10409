"""The same demo on a server, and twice in a row on its own file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.demo.server import DemoServer, ask, fresh, until
from tests.demo.test_duplicates import MANY, all_at_once
from tests.infra import RedisServer


async def held_then_replayed_after_a_restart(demo: DemoServer) -> None:
    """Duplicates at once, one execution; another run of the demo still has the answer."""
    ref = fresh("ref")
    request = ask("stripe", fresh(), f"probe:ref={ref} probe:delay=100")
    answers = await all_at_once(demo, request, MANY)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.content for answer in answers}) == 1
    demo.restart()
    again = demo.send(request)
    assert (again.content, again.headers["idempotent-replayed"]) == (answers[0].content, "true")
    assert demo.executions(ref) == 1


def log_of(demo: DemoServer) -> str:
    """What it said on the terminal."""
    return Path(demo.folder, "log").read_text()


async def test_on_redis(redis_url: str) -> None:
    """The demo makes what it needs in an empty Redis."""
    with DemoServer(redis_url) as demo:
        await held_then_replayed_after_a_restart(demo)


async def test_on_postgres(postgres_url: str) -> None:
    """The demo makes its tables in an empty database."""
    with DemoServer(postgres_url) as demo:
        await held_then_replayed_after_a_restart(demo)


async def test_two_runs_in_a_row_in_one_folder() -> None:
    """The second run finds the first one's files and goes on from there; neither shows a trace of a fault."""
    with DemoServer() as demo:
        await held_then_replayed_after_a_restart(demo)
        assert "Traceback" not in log_of(demo)


async def test_in_memory_with_one_worker() -> None:
    """Records in the process's own memory, for a look without a file."""
    with DemoServer("memory://", workers=1) as demo:
        ref = fresh("ref")
        answers = await all_at_once(demo, ask("adyen", fresh(), f"probe:ref={ref} probe:delay=50"), 8)
        assert {answer.status_code for answer in answers} == {200}
        assert demo.executions(ref) == 1


def test_while_the_store_is_down_nothing_runs() -> None:
    """503 with a time to come back, in the dialect's shape; the provider acts once it is there again."""
    ref, request = fresh("ref"), fresh()
    with RedisServer() as redis, DemoServer(redis.url) as demo:
        orders = ask("ietf", request, f"probe:ref={ref}")
        redis.kill()
        refused, shaped = demo.send(orders), demo.send(ask("stripe", fresh(), f"probe:ref={ref}"))
        assert (refused.status_code, refused.json()["retry"]) == (503, "same-key-later")
        assert int(refused.headers["retry-after"]) >= 1
        assert (shaped.status_code, shaped.json()["error"]["type"]) == (503, "api_error")
        assert demo.executions(ref) == 0
        redis.start()
        answer = until(lambda: demo.send(orders).status_code != 503 and demo.send(orders))
        assert (answer.status_code, demo.executions(ref)) == (201, 1)


def test_a_provider_without_its_ledger_is_not_asked_again() -> None:
    """When the effect cannot be known the key is shut; without a key the failure has the dialect's shape."""
    with DemoServer(workers=1) as demo:
        ledger = sqlite3.connect(demo.folder / "oncekey-demo" / "provider-ledger.db")
        ledger.execute("ALTER TABLE provider_run RENAME TO gone")
        ledger.close()
        guarded = ask("ietf", fresh())
        answers = [demo.send(guarded), demo.send(guarded), demo.send(ask("adyen", None)), demo.get("/__probe__/recent")]
        assert [answer.status_code for answer in answers] == [409, 409, 503, 503]
        assert {one.headers["idempotency-problem"] for one in answers[:2]} == {"outcome-unknown"}
        assert all(answer.json() for answer in answers)
        assert "Traceback" not in log_of(demo)
