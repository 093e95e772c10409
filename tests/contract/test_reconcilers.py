"""Reconcilers on every store: what they settle is replayed or run again, and several of them ask about each once."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from oncekey.core.decision import Execute, Replay
from oncekey.core.record import State
from oncekey.reconcile import AsyncReconciler, Finding, Inquiry, Pace, Reconciler
from oncekey.testing.bench import Driven, a_claim, another_request, at_once
from tests.contract.stores import ALL, SHARED, Subject
from tests.reconcile.kit import not_there, paid, rules, silent, unknown

PACE = Pace(at_once=4, most_for=3600)


@pytest.mark.parametrize(("store", "colour"), ALL)
def test_what_was_found_out_is_what_retries_get(subject: Subject) -> None:
    """Landed: replayed. Cancelled and not there: run again. Unclear: still shut, and asked about later."""
    bench = subject.bench()
    answers = {"landed": paid, "free": not_there, "unclear": silent}
    endpoint = f"POST /{bench.now()}"
    ids = {key: unknown(bench.store, endpoint, key) for key in answers}
    bench.outwait()

    def look(inquiry: Inquiry) -> Finding:
        return answers[inquiry.key](inquiry)

    made = rules(look, endpoint, PACE)
    if isinstance(bench.store, Driven):
        bench.store.thread.wait_for(AsyncReconciler(bench.store.store, made).run_once())
    else:
        Reconciler(bench.store, made).run_once()
    states = {key: bench.record(id_).state for key, id_ in ids.items()}
    assert states == {"landed": State.COMPLETED, "free": State.FAILED_RETRYABLE, "unclear": State.UNKNOWN}
    decisions = {key: bench.enter(another_request(a_claim(id=id_))) for key, id_ in ids.items()}
    assert isinstance(decisions["landed"], Replay)
    assert isinstance(decisions["free"], Execute)
    later = bench.record(ids["unclear"])
    assert later.due_at is not None
    assert later.due_at > bench.now()
    bench.close()


@pytest.mark.parametrize(("store", "colour"), SHARED)
def test_several_workers_ask_about_each_once(subject: Subject) -> None:
    """Three workers with connections of their own drain one queue: no record is asked about twice."""
    bench = subject.bench()
    endpoint = f"POST /{bench.now()}-several"
    ids = {unknown(bench.store, endpoint) for _ in range(60)}
    bench.outwait()
    asked: Counter[bytes] = Counter()
    lock = threading.Lock()

    def look(inquiry: Inquiry) -> Finding:
        with lock:
            asked[inquiry.id] += 1
        return paid(inquiry)

    workers = [Reconciler(bench.another(), rules(look, endpoint, PACE)) for _ in range(3)]
    reports = at_once([worker.run_once for worker in workers])
    assert {id_: asked[id_] for id_ in ids} == dict.fromkeys(ids, 1)
    assert sum(report.landed for report in reports) == 60
    assert {bench.record(id_).state for id_ in ids} == {State.COMPLETED}
    bench.close()
