"""The real paypal-server-sdk against the demo, by CONTRACTS 4.1: a token first, 201 then 200, no retry of a POST."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from paypalserversdk.configuration import Configuration, Environment, Server
from paypalserversdk.exceptions.error_exception import ErrorException
from paypalserversdk.http.auth.o_auth_2 import ClientCredentialsAuthCredentials
from paypalserversdk.models.amount_with_breakdown import AmountWithBreakdown
from paypalserversdk.models.checkout_payment_intent import CheckoutPaymentIntent
from paypalserversdk.models.order_request import OrderRequest
from paypalserversdk.models.purchase_unit_request import PurchaseUnitRequest
from paypalserversdk.models.refund_request import RefundRequest
from paypalserversdk.paypal_serversdk_client import PaypalServersdkClient

from oncekey import by_header
from tests.demo.server import PATIENCE, DemoServer, fresh
from tests.sdks.line import Line
from tests.sdks.shop import Shop, opened


class Caller:
    """An SDK client with a session that the test can close."""

    def __init__(self, line: Line, client: str = "alice") -> None:
        self.session = requests.Session()
        Configuration.environments[Environment.SANDBOX][Server.DEFAULT] = line.url
        self.sdk = PaypalServersdkClient(
            client_credentials_auth_credentials=ClientCredentialsAuthCredentials(client, "any secret"),
            http_client_instance=self.session,
        )

    def order(self, ref: str, key: str | None, value: str = "5.00") -> Any:
        """Make an order."""
        unit = PurchaseUnitRequest(amount=AmountWithBreakdown("EUR", value), description=f"probe:ref={ref}")
        request = OrderRequest(intent=CheckoutPaymentIntent.CAPTURE, purchase_units=[unit])
        options = {"body": request, "prefer": "return=minimal"}
        return self.sdk.orders.create_order(options | ({"paypal_request_id": key} if key else {}))

    def refund(self, ref: str, key: str) -> Any:
        """Give money back."""
        request = RefundRequest(note_to_payer=f"probe:ref={ref}")
        return self.sdk.payments.refund_captured_payment(
            {"capture_id": "CAP1", "paypal_request_id": key, "body": request}
        )


@pytest.fixture(autouse=True)
def sandbox() -> Iterator[None]:
    """The SDK has no option for its address; put back what a test writes over it."""
    addresses = Configuration.environments[Environment.SANDBOX]
    before = dict(addresses)
    yield
    addresses.update(before)


@pytest.fixture
def alice(line: Line) -> Iterator[Caller]:
    """A client of the line."""
    caller = Caller(line)
    yield caller
    caller.session.close()


def test_an_order_is_201_and_its_duplicate_200(demo: DemoServer, alice: Caller, line: Line) -> None:
    """The same order; the token is fetched once and is the caller."""
    ref, key = fresh("ref"), fresh()
    first, again = alice.order(ref, key), alice.order(ref, key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.body.id == again.body.id
    assert first.text == again.text
    assert [passed.path for passed in line.passed] == ["/v1/oauth2/token", *["/v2/checkout/orders"] * 2]
    assert line.sent("paypal-request-id")[1:] == [key, key]
    assert demo.executions(ref) == 1


def test_a_refund_is_made_once(demo: DemoServer, alice: Caller) -> None:
    """The capture's id is in the path."""
    ref, key = fresh("ref"), fresh()
    first, again = alice.refund(ref, key), alice.refund(ref, key)
    assert (first.status_code, again.status_code, first.body.id) == (201, 200, again.body.id)
    assert demo.executions(ref) == 1


def test_no_key_is_made_up(demo: DemoServer, alice: Caller, line: Line) -> None:
    """Without a key of the caller's each call is an order."""
    ref = fresh("ref")
    assert alice.order(ref, None).body.id != alice.order(ref, None).body.id
    assert line.sent("paypal-request-id")[1:] == [None, None]
    assert demo.executions(ref) == 2


def test_a_lost_answer_is_raised_and_the_retry_is_safe(demo: DemoServer, alice: Caller, line: Line) -> None:
    """The SDK does not retry a POST; the caller's own retry with the key gets the order."""
    ref, key = fresh("ref"), fresh()
    alice.order(fresh("ref"), None)  # the token is there from now on
    line.lose = 1
    with pytest.raises(requests.ConnectionError):
        alice.order(ref, key)
    assert alice.order(ref, key).status_code == 200
    assert demo.executions(ref) == 1


def test_a_mismatch_is_400_with_the_issue(demo: DemoServer, alice: Caller) -> None:
    """DUPLICATE_REQUEST_ID, in the exception's details."""
    ref, key = fresh("ref"), fresh()
    alice.order(ref, key)
    with pytest.raises(ErrorException) as raised:
        alice.order(ref, key, value="9.00")
    assert (raised.value.response_code, raised.value.name) == (400, "INVALID_REQUEST")
    assert [detail.issue for detail in raised.value.details] == ["DUPLICATE_REQUEST_ID"]
    assert demo.executions(ref) == 1


def test_a_server_error_may_be_sent_again(demo: DemoServer, alice: Caller, line: Line) -> None:
    """A 5xx is declared without effect: the retry under the key runs and is the first success."""
    ref, key = fresh("ref"), fresh()
    with pytest.raises(ErrorException) as raised:
        alice.order(f"{ref} probe:fail-once=500", key)
    assert (raised.value.response_code, raised.value.name) == (500, "INTERNAL_SERVER_ERROR")
    assert alice.order(f"{ref} probe:fail-once=500", key).status_code == 201
    assert demo.executions(ref) == 2


def test_another_client_id_is_another_merchant(demo: DemoServer, alice: Caller, line: Line) -> None:
    """The same key from two clients makes two orders; the same client with a new token makes none."""
    ref, key, bob, later = fresh("ref"), fresh(), Caller(line, "bob"), Caller(line, "alice")
    try:
        ids = [caller.order(ref, key).body.id for caller in (alice, bob, later)]
    finally:
        bob.session.close()
        later.session.close()
    assert (ids[0] == ids[2], ids[0] == ids[1], demo.executions(ref)) == (True, False, 2)


def test_duplicates_at_once_are_held(demo: DemoServer, alice: Caller) -> None:
    """One is told 201, the others 200, all the same order."""
    ref, key = fresh("ref"), fresh()
    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(lambda _: alice.order(f"{ref} probe:delay=300", key), range(6)))
    assert sorted(one.status_code for one in made) == [200] * 5 + [201]
    assert (len({one.body.id for one in made}), demo.executions(ref)) == (1, 1)


def serve(headers: dict[bytes, bytes], body: bytes, number: int) -> Any:
    """The token, then orders."""
    token = b'{"access_token": "t", "token_type": "Bearer", "expires_in": 3600}'
    is_order = b"purchase_units" in body
    return 201 if is_order else 200, [(b"content-type", b"application/json")], b'{"id": "O1"}' if is_order else token


def test_a_409_in_flight_raises_its_issue() -> None:
    """RESOURCE_CONFLICT, PREVIOUS_REQUEST_IN_PROGRESS; the key may be used again."""
    shop, key = Shop(serve), fresh()
    with opened(shop, "paypal", by_header("Authorization")), Line(shop.port) as line, ThreadPoolExecutor(1) as thread:
        caller = Caller(line)
        caller.order("r", None)
        shop.gate.clear()
        shop.begun.clear()
        first = thread.submit(caller.order, "r", key)
        assert shop.begun.wait(PATIENCE)
        with pytest.raises(ErrorException) as raised:
            caller.order("r", key)
        shop.gate.set()
        assert first.result().body.id == caller.order("r", key).body.id == "O1"
        caller.session.close()
    assert (raised.value.response_code, raised.value.name) == (409, "RESOURCE_CONFLICT")
    assert raised.value.details[0].issue == "PREVIOUS_REQUEST_IN_PROGRESS"
    assert len(shop.runs) == 3
