"""The real square package against the demo, by CONTRACTS 4.1: the key in the body, ApiError, Retry-After honoured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from square import Square
from square.core.api_error import ApiError
from square.types.payment import Payment

from oncekey import by_header
from tests.demo.server import PATIENCE, DemoServer, fresh
from tests.sdks.line import Line
from tests.sdks.shop import Shop, opened

PAYMENT = b'{"payment": {"id": "pay_1"}}'


@pytest.fixture
def client(line: Line) -> Iterator[Square]:
    """A client of the line."""
    with httpx.Client(timeout=PATIENCE) as connection:
        yield Square(token="alice", base_url=line.url, httpx_client=connection)


def pay(through: Square, ref: str, key: str, amount: int = 500, **options: Any) -> Payment:
    """Take a payment."""
    answer = through.payments.create(
        source_id="cnon:card-nonce-ok",
        idempotency_key=key,
        amount_money={"amount": amount, "currency": "EUR"},
        note=f"probe:ref={ref}",
        request_options=options or None,
    )
    payment: Payment = answer.payment
    return payment


def test_a_payment_carries_its_key_in_the_body(demo: DemoServer, client: Square, line: Line) -> None:
    """The key goes out as it was given, and the payment comes back in Square's shape."""
    key = fresh()
    made = pay(client, fresh("ref"), key)
    assert json.loads(line.passed[0].body)["idempotency_key"] == key
    assert made.amount_money is not None
    assert (made.status, made.amount_money.amount) == ("COMPLETED", 500)


def test_a_duplicate_is_the_same_payment(demo: DemoServer, client: Square) -> None:
    """There is no marker: the first response again, and one charge."""
    ref, key = fresh("ref"), fresh()
    assert pay(client, ref, key) == pay(client, ref, key)
    assert demo.executions(ref) == 1


def test_a_lost_answer_is_raised_at_once_and_the_retry_is_safe(demo: DemoServer, client: Square, line: Line) -> None:
    """This SDK does not retry a lost connection; the caller's own retry with the key gets the payment."""
    line.lose, ref, key = 1, fresh("ref"), fresh()
    with pytest.raises(httpx.RemoteProtocolError):
        pay(client, ref, key)
    assert len(line.passed) == 1
    assert json.loads(line.passed[0].body)["idempotency_key"] == key
    assert pay(client, ref, key).id
    assert demo.executions(ref) == 1


def test_a_mismatch_is_one_400_with_squares_code(demo: DemoServer, client: Square, line: Line) -> None:
    """With 400 the SDK gives up at once; 409 would have cost it three seconds."""
    ref, key = fresh("ref"), fresh()
    pay(client, ref, key)
    with pytest.raises(ApiError) as raised:
        pay(client, ref, key, amount=900)
    assert raised.value.status_code == 400
    assert [error.code for error in raised.value.errors] == ["IDEMPOTENCY_KEY_REUSED"]
    assert (len(line.passed), demo.executions(ref)) == (2, 1)


def test_a_declined_card_is_an_api_error(demo: DemoServer, client: Square) -> None:
    """402 in Square's shape, and the same again on a retry."""
    ref, key = fresh("ref probe:fail=402"), fresh()
    for _ in range(2):
        with pytest.raises(ApiError) as raised:
            pay(client, ref, key)
        assert raised.value.errors[0].category == "PAYMENT_METHOD_ERROR"


def test_duplicates_at_once_are_held(demo: DemoServer, client: Square) -> None:
    """All get the one payment."""
    ref, key = fresh("ref"), fresh()
    with ThreadPoolExecutor(6) as threads:
        made = threads.map(lambda _: pay(client, f"{ref} probe:delay=300", key).id, range(6))
        assert len(set(made)) == 1
    assert demo.executions(ref) == 1


def test_an_unknown_outcome_is_a_conflict(demo: DemoServer, client: Square) -> None:
    """After a 500 nobody knows: the retry is told CONFLICT, with the time to come back, and nothing runs."""
    ref, key = fresh("ref"), fresh()
    for status, code in ((500, "INTERNAL_SERVER_ERROR"), (409, "CONFLICT")):
        with pytest.raises(ApiError) as raised:
            pay(client, f"{ref} probe:fail=500", key, max_retries=0)
        assert (raised.value.status_code, raised.value.errors[0].code) == (status, code)
    assert demo.executions(ref) == 1


def test_a_409_in_flight_is_retried_after_the_time_we_name() -> None:
    """The SDK honours Retry-After; its next try is the replay."""
    shop, key = Shop(lambda headers, body, number: (200, [(b"content-type", b"application/json")], PAYMENT)), fresh()
    shop.gate.clear()
    with opened(shop, "square", by_header("Authorization")), Line(shop.port) as line, httpx.Client() as connection:
        through = Square(token="alice", base_url=line.url, httpx_client=connection)
        other = Square(token="alice", base_url=f"http://127.0.0.1:{shop.port}", httpx_client=connection)
        with ThreadPoolExecutor(1) as thread:
            first = thread.submit(pay, other, "r", key)
            assert shop.begun.wait(PATIENCE)
            line.then = lambda passed: shop.gate.set()
            assert pay(through, "r", key).id == first.result().id == "pay_1"
    assert [passed.status for passed in line.passed] == [409, 200]
    assert int(line.passed[0].answer["retry-after"]) >= 1
    assert len(shop.runs) == 1
