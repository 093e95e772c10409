"""Records that come whole from another store: put where nothing stands, and from then on like any others."""

from __future__ import annotations

import secrets
from typing import Any

from oncekey.core.commands import Swap
from oncekey.core.decision import Execute, InProgress, Replay, Unknown
from oncekey.core.record import Guarantee, Label, Record, State, replace
from oncekey.testing.bench import FINGERPRINT, HOUR, SOON, Bench, a_claim, a_settlement, another_request
from oncekey.testing.expect import done, expect, is_a, remembered, stale
from oncekey.testing.scenarios.listing import ids, listed, ours
from oncekey.testing.scenarios.registry import scenario


def a_record(bench: Bench, state: State, **changes: Any) -> Record:
    """A record as it comes from elsewhere."""
    now = bench.now()
    ends = state in {State.COMPLETED, State.FAILED_RETRYABLE, State.EXPIRED}
    whole = Record(
        id=secrets.token_bytes(20),
        state=state,
        version=300,
        token=secrets.token_bytes(16),
        fingerprint=FINGERPRINT,
        guarantee=Guarantee.AT_MOST_ONCE,
        attempts=3,
        claimed_at=now - HOUR,
        lease_until=now + HOUR if state.word == "in_progress" else None,
        due_at=now + HOUR if state in {State.UNKNOWN, State.FAILED_RETRYABLE} else None,
        expires_at=now + 2 * HOUR if ends else None,
        label=Label("ö", "POST /x", "k"),
        note="weil nötig",
        outcome=b"\x00outcome\xff" if state is not State.EXPIRED else b"",
    )
    return replace(whole, **changes)


@scenario
def a_put_stores_records_whole(bench: Bench) -> None:
    """Many records at once are written with every field as it is, and listed by their states."""
    records = [a_record(bench, state) for state in State]
    for written in bench.store.put(records):
        done(written, "nothing stood there")
    for record in records:
        expect(remembered(bench.record(record.id)), remembered(record), f"every field of {record.state.name}")
        found = {one.id for one in listed(bench.store, (record.state,))}
        expect(found & {one.id for one in records}, {record.id}, f"listed as {record.state.name}")


@scenario
def a_put_touches_nothing_that_stands(bench: Bench) -> None:
    """Where a record stands it is shown and left alone; its neighbours in the batch are written."""
    claim, ended = bench.won(), bench.settled()
    before = [bench.record(claim.id), bench.record(ended.id)]
    fresh = a_record(bench, State.UNKNOWN)
    batch = [replace(a_record(bench, State.FAILED_RETRYABLE), id=claim.id), fresh]
    batch += [replace(a_record(bench, State.COMPLETED), id=ended.id)]
    first, second, third = bench.store.put(batch)
    expect([stale(first, "it is claimed"), stale(third, "it is completed")], before, "what stands is shown")
    done(second, "its neighbour")
    expect([bench.record(claim.id), bench.record(ended.id)], before, "and stays")
    again = is_a(Record, stale(bench.store.put([fresh])[0], "again"), "shown")
    expect(remembered(again), remembered(fresh), "a repetition shows itself")
    expect(bench.store.put([]), [], "an empty batch")


@scenario
def a_put_record_obeys_the_rules(bench: Bench) -> None:
    """What was put is replayed, held, kept shut or retried as if it had been made here, and its owner may settle it."""
    completed, unknown, failed, running = (
        a_record(bench, state, due_at=None)
        for state in (State.COMPLETED, State.UNKNOWN, State.FAILED_RETRYABLE, State.EXECUTING)
    )
    for written in bench.store.put([completed, unknown, failed, running]):
        done(written, "put")

    def request(record: Record) -> Any:
        return bench.enter(another_request(a_claim(id=record.id, fingerprint=record.fingerprint)))

    is_a(Replay, request(completed), "its answer is given")
    is_a(Unknown, request(unknown), "it stays shut")
    is_a(InProgress, request(running), "its lease is alive")
    expect(is_a(Execute, request(failed), "it may be retried").attempt, 4, "its attempts are counted on")
    for record in (running, unknown):
        owner = a_claim(id=record.id, token=record.token)
        done(bench.store.settle([a_settlement(owner)])[0], "the owner's token is there")
    old = bench.record(completed.id)
    done(bench.store.swap(Swap(old, replace(old, version=old.version + 1))), "its version is there")


@scenario
def a_put_record_lapses_and_expires(bench: Bench) -> None:
    """A lease that is put is swept when it is over, a due time comes up, and an expiry ends what was put."""
    now = bench.now()
    running = a_record(bench, State.EXECUTING, lease_until=now + SOON)
    asked = a_record(bench, State.UNKNOWN, due_at=now + SOON)
    ended = a_record(bench, State.COMPLETED, expires_at=now + SOON)
    bench.store.put([running, asked, ended])
    bench.outwait()
    claims = [a_claim(id=record.id) for record in (running, asked, ended)]
    expect(ours(listed(bench.store, (State.EXECUTING,), 0), claims), ids(claims[0]), "its lease is over")
    expect(ours(listed(bench.store, (State.UNKNOWN,), 0), claims), ids(claims[1]), "it is due")
    is_a(Execute, bench.enter(another_request(claims[2])), "what has expired is gone")
