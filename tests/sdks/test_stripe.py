"""The real stripe package against the demo, by CONTRACTS 4.1: what it sends, retries and raises."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import stripe

from oncekey import by_header
from tests.demo.server import PATIENCE, DemoServer, fresh
from tests.sdks.line import Line
from tests.sdks.shop import Shop, opened

CHARGE = b'{"id": "ch_1", "object": "charge"}'


def client(line: Line, retries: int = 2) -> stripe.StripeClient:
    """A client of the line."""
    return stripe.StripeClient("sk_test_alice", base_addresses={"api": line.url}, max_network_retries=retries)


def charge(through: stripe.StripeClient, ref: str, key: str | None = None, **change: Any) -> stripe.Charge:
    """Charge something."""
    params = {"amount": 500, "currency": "eur", "description": f"probe:ref={ref}", **change}
    options: Any = {"idempotency_key": key} if key else {}
    return through.v1.charges.create(params=params, options=options)  # type: ignore[arg-type] # a TypedDict


def test_the_sdk_makes_a_key_that_is_no_uuid(demo: DemoServer, line: Line) -> None:
    """A charge without a key of the caller's gets one of UUID shape whose version is random; it must be accepted."""
    made = [charge(client(line), fresh("ref")) for _ in range(4)]
    keys = line.sent("idempotency-key")
    assert len({one.id for one in made}) == len(set(keys)) == 4
    assert all(key and str(uuid.UUID(key)) == key for key in keys)
    assert [one.last_response.idempotency_key for one in made] == keys  # type: ignore[union-attr] # of a resource


def test_a_lost_answer_is_retried_and_charged_once(demo: DemoServer, line: Line) -> None:
    """The SDK tries again with the same key and gets the answer of the first run."""
    line.lose, ref = 2, fresh("ref")
    done = charge(client(line), ref)
    assert (done.object, len(set(line.sent("idempotency-key"))), len(line.passed)) == ("charge", 1, 3)
    assert done.last_response is not None
    assert done.last_response.headers["idempotent-replayed"] == "true"
    assert demo.executions(ref) == 1


def test_a_client_without_retries_may_retry_itself(demo: DemoServer, line: Line) -> None:
    """StripeClient() raises at once by default; the caller's own retry under its key gets the charge."""
    ref, key = fresh("ref"), fresh()
    line.lose = 1
    with pytest.raises(stripe.APIConnectionError):
        charge(client(line, retries=0), ref, key)
    assert charge(client(line, retries=0), ref, key).paid
    assert demo.executions(ref) == 1


def test_a_duplicate_is_replayed_with_its_marks(demo: DemoServer, line: Line) -> None:
    """The same object; the marker is on the replay alone, and the key is echoed on both."""
    ref, key = fresh("ref"), fresh()
    first, again = (charge(client(line), ref, key).last_response for _ in range(2))
    assert first is not None
    assert again is not None
    assert first.body == again.body
    assert ["idempotent-replayed" in answer.headers for answer in (first, again)] == [False, True]
    assert first.idempotency_key == again.idempotency_key == key
    assert demo.executions(ref) == 1


def test_duplicates_at_once_are_held(demo: DemoServer, line: Line) -> None:
    """Callers whose patience for 409s is short get the first answer instead of a 409."""
    ref, key = fresh("ref"), fresh()

    def once(_: int) -> str:
        return charge(client(line, retries=0), ref, key, metadata={"slow": "probe:delay=300"}).id

    with ThreadPoolExecutor(6) as threads:
        assert len(set(threads.map(once, range(6)))) == 1
    assert demo.executions(ref) == 1


@pytest.mark.parametrize("change", [{"amount": 900}, {"currency": "usd"}])
def test_a_mismatch_raises_idempotency_error_at_once(demo: DemoServer, line: Line, change: dict[str, Any]) -> None:
    """400 with type idempotency_error: no retry is wasted on it."""
    ref, key = fresh("ref"), fresh()
    charge(client(line), ref, key)
    with pytest.raises(stripe.IdempotencyError) as raised:
        charge(client(line), ref, key, **change)
    assert (raised.value.http_status, len(line.passed)) == (400, 2)
    assert demo.executions(ref) == 1


def test_a_key_at_another_endpoint_is_a_mismatch(demo: DemoServer, line: Line) -> None:
    """A charge's key may not make a customer."""
    key = fresh()
    charge(client(line), fresh("ref"), key)
    with pytest.raises(stripe.IdempotencyError):
        client(line).v1.customers.create(params={"name": "Al"}, options={"idempotency_key": key})


def test_a_stored_500_is_neither_retried_nor_run_again(demo: DemoServer, line: Line) -> None:
    """Stripe-Should-Retry: false saves two calls, and the caller's retry gets the same 500."""
    ref, key = fresh("ref"), fresh()
    for tries in (1, 2):
        with pytest.raises(stripe.APIError) as raised:
            charge(client(line), ref, key, metadata={"a": "probe:fail=500"})
        assert (raised.value.http_status, len(line.passed)) == (500, tries)
    assert demo.executions(ref) == 1


def test_a_declined_card_is_a_card_error(demo: DemoServer, line: Line) -> None:
    """402 in Stripe's shape."""
    with pytest.raises(stripe.CardError) as raised:
        charge(client(line), fresh("ref"), metadata={"a": "probe:fail=402"})
    assert raised.value.code == "card_declined"


def test_validation_leaves_the_key_free(demo: DemoServer, line: Line) -> None:
    """A charge without amount names the parameter; the corrected one may use the same key."""
    ref, key = fresh("ref"), fresh()
    with pytest.raises(stripe.InvalidRequestError) as raised:
        charge(client(line), ref, key, amount=None)
    assert raised.value.param == "amount"
    assert charge(client(line), ref, key).amount == 500
    assert demo.executions(ref) == 1


@pytest.fixture
def module(line: Line, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package's global settings, pointed at the line."""
    settings: dict[str, Any] = {"api_key": "sk_test_module", "api_base": line.url, "max_network_retries": 2}
    settings["default_http_client"] = None
    for name, value in settings.items():
        monkeypatch.setattr(stripe, name, value)
    yield
    if stripe.default_http_client is not None:
        stripe.default_http_client.close()


@pytest.mark.usefixtures("module")
def test_module_style_does_the_same(demo: DemoServer, line: Line) -> None:
    """stripe.Charge.create, retrieve, and a customer made and deleted."""
    line.lose, ref = 1, fresh("ref")
    made = stripe.Charge.create(amount=700, currency="eur", description=f"probe:ref={ref}", idempotency_key=fresh())
    assert stripe.Charge.retrieve(made.id).amount == 700
    customer = stripe.Customer.create(name="Al", description=f"probe:ref={ref}")
    assert stripe.Customer.delete(customer.id).deleted
    assert demo.executions(ref) == 2


@pytest.fixture
def busy() -> Iterator[tuple[Shop, Line]]:
    """A shop whose first run is under way."""
    shop = Shop(lambda headers, body, number: (200, [(b"content-type", b"application/json")], CHARGE))
    with opened(shop, "stripe", by_header("Authorization")), Line(shop.port) as line:
        shop.gate.clear()
        yield shop, line


def test_a_409_in_flight_is_retried_until_the_answer_is_there(busy: tuple[Shop, Line]) -> None:
    """The first 409 opens the gate; the SDK's next try is the replay, under the same key."""
    shop, line = busy
    key = fresh()
    with ThreadPoolExecutor(1) as thread, Line(shop.port) as other:
        first = thread.submit(charge, client(other), "r", key)
        assert shop.begun.wait(PATIENCE)
        line.then = lambda passed: shop.gate.set()
        assert charge(client(line), "r", key).id == first.result().id == "ch_1"
    assert line.passed[0].status == 409
    assert line.passed[-1].answer["idempotent-replayed"] == "true"
    assert (len(shop.runs), set(line.sent("idempotency-key"))) == (1, {key})


def test_patience_for_409s_ends_after_three_tries(busy: tuple[Shop, Line]) -> None:
    """A work longer than that surfaces as an APIError with Stripe's code, which is why the demo holds duplicates."""
    shop, line = busy
    key = fresh()
    with ThreadPoolExecutor(1) as thread, Line(shop.port) as other:
        first = thread.submit(charge, client(other), "r", key)
        assert shop.begun.wait(PATIENCE)
        with pytest.raises(stripe.APIError) as raised:
            charge(client(line), "r", key)
        shop.gate.set()
        assert first.result().id == "ch_1"
    told: Any = raised.value.json_body
    assert (raised.value.http_status, told["error"]["code"]) == (409, "idempotency_key_in_use")
    assert ([passed.status for passed in line.passed], len(shop.runs)) == ([409, 409, 409], 1)
