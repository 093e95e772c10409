from __future__ import annotations

import json
import time
from email.utils import formatdate

import pytest

from oncekey import Policy
from oncekey.core.keys import made_at
from oncekey.core.record import State, replace
from tests.adapters.asgi_kit import Guarded, Shop, call, http

DAY = 86_400.0


def uuid7(age: float) -> bytes:
    made = f"{int((time.time() - age) * 1000):012x}"
    return f"{made[:8]}-{made[8:]}-7abc-8abc-0123456789ab".encode()


def ulid(age: float) -> bytes:
    made, digits = int((time.time() - age) * 1000), ""
    for _ in range(10):
        made, digit = made >> 5, made & 31
        digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit] + digits
    return (digits + "0123456789ABCDEF").encode()


@pytest.mark.parametrize("key", [uuid7, ulid])
@pytest.mark.parametrize(("age", "status"), [(0.0, 201), (DAY - 10, 201), (DAY + 100, 201), (DAY + 1000, 412)])
async def test_a_key_older_than_answers_are_kept_is_not_run_as_new(key: object, age: float, status: int) -> None:
    """It may have been run and forgotten; five minutes are allowed for clocks."""
    shop = Shop()
    answer = await call(Guarded(shop), http(key(age)))  # type: ignore[operator]
    assert (answer.status, len(shop.effects)) == (status, int(status == 201))


async def test_a_request_that_says_when_it_was_first_sent_is_held_to_it() -> None:
    """The header works for keys that carry no time; the refusal says what to do."""
    scope = http()
    scope["headers"].append((b"repeatability-first-sent", formatdate(time.time() - 2 * DAY, usegmt=True).encode()))
    refused = await call(Guarded(Shop()), scope)
    problem = json.loads(refused.body)
    assert (refused.status, problem["type"].rsplit("/", 1)[1], problem["retry"]) == (412, "request-too-old", "never")


async def test_a_date_that_is_none_is_ignored() -> None:
    """A client's odd header is no reason to refuse its request."""
    scope = http()
    scope["headers"].append((b"idempotency-first-sent", b"yesterday"))
    assert (await call(Guarded(Shop()), scope)).status == 201


async def test_an_old_key_still_gets_its_answer() -> None:
    """The key was made long before it was first sent: while the record is there, it replays."""
    shop = Shop()
    app = Guarded(shop, policy=Policy(keep_for=30, recall_for=None))
    fresh = http(uuid7(0))
    await call(app, fresh)
    record = app.records[0]
    late = http(uuid7(0))
    late["headers"] = [
        *fresh["headers"],
        (b"idempotency-first-sent", formatdate(time.time() - DAY, usegmt=True).encode()),
    ]
    assert (await call(app, late)).body == b'{"n":1}'
    app.store._records[record.id] = replace(record, expires_at=1)
    assert (await call(app, late)).status == 412
    app.store._records[record.id] = replace(record, state=State.FAILED_RETRYABLE, outcome=b"")
    assert (await call(app, late)).status == 201


@pytest.mark.parametrize("key", ["550e8400-e29b-41d4-a716-446655440000", "order-7", "7" * 36, "8" * 26, ""])
def test_other_keys_carry_no_time(key: str) -> None:
    """Only a well-formed UUIDv7 or ULID says when it was made."""
    assert made_at(key) is None


@pytest.mark.parametrize("key", ["00000000000000000000004711", "00000000-0000-7000-8000-000000000001"])
async def test_a_number_with_leading_zeros_is_no_time(key: str) -> None:
    """By its shape it is a ULID or a UUIDv7, of a year in which there were none: it would never be run."""
    shop = Shop()
    assert made_at(key) is None
    assert (await call(Guarded(shop), http(key.encode()))).status == 201
