"""The real Adyen package against the demo, by CONTRACTS 4.1: it retries nothing, so the caller does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import Adyen
import pytest
import requests
from Adyen.exceptions import AdyenAPIResponseError, AdyenAPIUnprocessableEntity

from oncekey import by_header
from tests.demo.server import PATIENCE, DemoServer, fresh
from tests.sdks.line import Line
from tests.sdks.shop import Shop, opened

AUTHORISED = b'{"pspReference": "PSP1", "resultCode": "Authorised"}'


def pay(line: Line, reference: str, key: str | None, amount: int = 500, caller: str = "alice") -> Any:
    """Authorise a payment."""
    adyen = Adyen.Adyen(xapikey=caller, platform="test", http_force="requests")
    payments = adyen.checkout.payments_api
    assert payments.baseUrl.endswith("/v72")
    payments.baseUrl = f"{line.url}/v72"
    request = {"amount": {"value": amount, "currency": "EUR"}, "reference": reference, "merchantAccount": "Demo"}
    return payments.payments(request, idempotency_key=key)


def test_a_payment_is_authorised_once_per_key(demo: DemoServer, line: Line) -> None:
    """A duplicate gets the same reference; the echoed key is on the wire, where the SDK does not show it."""
    ref, key = fresh("ref"), fresh("k")[:64]
    first, again = (pay(line, f"probe:ref={ref}", key) for _ in range(2))
    assert first.message == again.message
    assert first.message["resultCode"] == "Authorised"
    assert first.psp == first.message["pspReference"]
    assert [passed.answer["idempotency-key"] for passed in line.passed] == line.sent("idempotency-key") == [key, key]
    assert demo.executions(ref) == 1


def test_no_key_is_made_up(demo: DemoServer, line: Line) -> None:
    """Without a key of the caller's each call is a payment, and nothing is echoed."""
    ref = fresh("ref")
    for _ in range(2):
        pay(line, f"probe:ref={ref}", None)
    assert line.sent("idempotency-key") == [None, None]
    assert "idempotency-key" not in line.passed[0].answer
    assert demo.executions(ref) == 2


def test_a_lost_answer_is_raised_and_the_retry_is_safe(demo: DemoServer, line: Line) -> None:
    """The caller's own retry with the key gets the first reference."""
    line.lose, ref, key = 1, fresh("ref"), fresh()
    with pytest.raises(requests.ConnectionError):
        pay(line, f"probe:ref={ref}", key)
    assert len(line.passed) == 1
    assert pay(line, f"probe:ref={ref}", key).psp in line.passed[0].content.decode()
    assert demo.executions(ref) == 1


def test_a_mismatch_is_422_and_not_transient(demo: DemoServer, line: Line) -> None:
    """Error code 704 without the header that would invite a retry."""
    ref, key = fresh("ref"), fresh()
    pay(line, f"probe:ref={ref}", key)
    with pytest.raises(AdyenAPIUnprocessableEntity) as raised:
        pay(line, f"probe:ref={ref}", key, amount=900)
    assert (raised.value.status_code, raised.value.error_code) == (422, "704")
    assert "transient-error" not in raised.value.headers
    assert demo.executions(ref) == 1


def test_another_api_key_is_another_merchant(demo: DemoServer, line: Line) -> None:
    """The caller is X-API-Key."""
    ref, key = fresh("ref"), fresh()
    references = {pay(line, f"probe:ref={ref}", key, caller=caller).psp for caller in ("alice", "bob")}
    assert (len(references), demo.executions(ref)) == (2, 2)


def test_a_transient_failure_may_be_sent_again(demo: DemoServer, line: Line) -> None:
    """503 with transient-error: true declares that nothing was done, so the retry under the key runs."""
    ref, key = fresh("ref"), fresh()
    with pytest.raises(AdyenAPIResponseError) as raised:
        pay(line, f"probe:ref={ref} probe:fail-once=503", key)
    assert (raised.value.error_code, raised.value.headers["transient-error"]) == ("703", "true")
    assert pay(line, f"probe:ref={ref} probe:fail-once=503", key).message["resultCode"] == "Authorised"
    assert demo.executions(ref) == 2


def test_duplicates_at_once_are_held(demo: DemoServer, line: Line) -> None:
    """A client that retries nothing is helped by nothing else."""
    ref, key = fresh("ref"), fresh()
    with ThreadPoolExecutor(6) as threads:
        made = threads.map(lambda _: pay(line, f"probe:ref={ref} probe:delay=300", key).psp, range(6))
        assert len(set(made)) == 1
    assert demo.executions(ref) == 1


def test_a_409_in_flight_says_that_it_is_transient() -> None:
    """704 with transient-error: true: the caller may come back with the same key."""
    shop, key = Shop(lambda headers, body, number: (200, [(b"content-type", b"application/json")], AUTHORISED)), fresh()
    shop.gate.clear()
    with opened(shop, "adyen", by_header("X-API-Key")), Line(shop.port) as line, ThreadPoolExecutor(1) as thread:
        first = thread.submit(pay, line, "r", key)
        assert shop.begun.wait(PATIENCE)
        with pytest.raises(AdyenAPIResponseError) as raised:
            pay(line, "r", key)
        shop.gate.set()
        assert first.result().psp == pay(line, "r", key).psp == "PSP1"
    assert (raised.value.status_code, raised.value.error_code) == (409, "704")
    assert raised.value.headers["transient-error"] == "true"
    assert len(shop.runs) == 1
