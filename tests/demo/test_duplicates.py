"""Duplicates at the same time, and a worker that dies while it charges."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.demo.server import KINDS, PATIENCE, Ask, DemoServer, ask, fresh, id_of, until

MANY = 32


async def all_at_once(demo: DemoServer, request: Ask, times: int) -> list[httpx.Response]:
    """Send one request many times, each on a connection of its own, so that both workers get some."""
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=demo.url, timeout=PATIENCE, limits=limits) as client:
        return await asyncio.gather(
            *(
                client.request(request.method, request.path, headers=request.headers, content=request.body)
                for _ in range(times)
            )
        )


@pytest.mark.parametrize("api", ["stripe", "square", "adyen", "paypal"])
async def test_duplicates_are_held_for_the_first_answer(demo: DemoServer, api: str) -> None:
    """All of many simultaneous requests get the same answer, and the provider acts once."""
    ref = fresh("ref")
    answers = await all_at_once(demo, ask(api, fresh(), f"probe:ref={ref} probe:delay=150"), MANY)
    first, replay = KINDS[api].success
    assert sorted({answer.status_code for answer in answers}) == sorted({first, replay})
    assert len({answer.content for answer in answers}) == 1
    assert demo.executions(ref) == 1


async def test_ietf_duplicates_are_told_409_at_once(demo: DemoServer) -> None:
    """While the order is being placed every duplicate is refused with a truthful time to come back."""
    ref = fresh("ref")
    answers = await all_at_once(demo, ask("ietf", fresh(), f"probe:ref={ref} probe:delay=400"), MANY)
    done = [answer for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code == 409]
    assert len(done) + len(refused) == MANY
    assert len({answer.content for answer in done}) == 1
    assert {answer.headers["idempotency-problem"] for answer in refused} == {"in-progress"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert demo.executions(ref) == 1


def test_a_client_that_leaves_finds_its_answer_later(demo: DemoServer) -> None:
    """The work goes on without its client, and the retry gets the stored answer."""
    ref = fresh("ref")
    request = ask("stripe", fresh(), f"probe:ref={ref} probe:delay=600")
    with pytest.raises(httpx.ReadTimeout):
        demo.http.post(demo.url + request.path, headers=request.headers, content=request.body, timeout=0.3)
    answer = demo.send(request)
    assert (answer.status_code, answer.headers["idempotent-replayed"]) == (200, "true")
    assert demo.executions(ref) == 1


def zombies(demo: DemoServer) -> int:
    """How many leases ended while their work was running."""
    told: int = demo.recent()["counters"]["api.idempotency.zombie_key.count"]
    return told


def test_a_worker_killed_while_it_charges_leaves_the_key_unknown(demo: DemoServer) -> None:
    """The charge has landed, nobody was told: after the lease every retry hears that, nothing runs again.

    Then the reconciler asks the provider, and the retry gets the answer that the killed worker could not give.
    """
    ref, key = fresh("ref"), fresh()
    request, before = ask("ietf", key, f"probe:ref={ref} probe:delay=60000"), zombies(demo)
    with ThreadPoolExecutor(1) as thread:
        cut = thread.submit(demo.send, request)
        os.kill(demo.run_of(ref)["worker"], signal.SIGKILL)
        assert isinstance(cut.exception(), httpx.TransportError)

    until(lambda: zombies(demo) > before)  # nobody asked for this key meanwhile: the sweep found it
    answer = demo.send(request)
    assert (answer.status_code, answer.headers["idempotency-problem"]) == (409, "outcome-unknown")
    assert answer.json()["retry"] == "same-key-later"
    assert demo.send(request).status_code == 409
    assert demo.executions(ref) == 1
    assert demo.send(ask("ietf", key, "something else")).status_code == 422

    settled = until(lambda: found if (found := demo.send(request)).status_code != 409 else None)
    assert (settled.status_code, settled.headers["idempotency-replayed"]) == (201, "true")
    assert settled.headers["location"] == f"/orders/{settled.json()['id']}"
    assert settled.json()["id"] == demo.run_of(ref)["object"]
    assert demo.executions(ref) == 1
    assert demo.recent()["counters"]["api.idempotency.reconcile.resolved.count"] >= 1


def test_a_charge_longer_than_its_lease_is_not_lost(demo: DemoServer) -> None:
    """The lease is renewed while the work runs: an answer after its end is the answer."""
    ref = fresh("ref")
    answer = demo.send(ask("paypal", fresh(), f"probe:ref={ref} probe:delay=5400"))
    assert answer.status_code == 201
    assert id_of("paypal", answer)
    assert demo.executions(ref) == 1
