"""The contract of the demo that scripts outside the project rely on: DESIGN.md section 9, row by row."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.demo.server import KINDS, Ask, DemoServer, ask, fresh, id_of

# Where a mismatch is found in the error.
MISMATCH = {
    "ietf": (422, lambda told: told["type"].endswith("/key-reused")),
    "stripe": (400, lambda told: told["error"]["type"] == "idempotency_error"),
    "square": (400, lambda told: told["errors"][0]["code"] == "IDEMPOTENCY_KEY_REUSED"),
    "adyen": (422, lambda told: told["errorCode"] == "704"),
    "paypal": (400, lambda told: told["details"][0]["issue"] == "DUPLICATE_REQUEST_ID"),
}
MARKERS = {"ietf": "idempotency-replayed", "stripe": "idempotent-replayed", "stripe-customers": "idempotent-replayed"}


@pytest.mark.parametrize("api", KINDS)
def test_a_retry_gets_the_first_answer(demo: DemoServer, api: str) -> None:
    """The same body byte for byte, the dialect's status and marker, and one execution."""
    request, ref = fresh(), fresh("ref")
    first, again = (demo.send(ask(api, request, f"probe:ref={ref}")) for _ in range(2))
    assert (first.status_code, again.status_code) == KINDS[api].success
    assert first.content == again.content
    assert id_of(api, first)
    marker = MARKERS.get(api)
    assert marker is None or (marker not in first.headers and again.headers[marker] == "true")
    assert demo.executions(ref) == 1


@pytest.mark.parametrize("api", KINDS)
def test_every_success_carries_a_fresh_id(demo: DemoServer, api: str) -> None:
    """Another key is another operation, with an id of its own."""
    ref = fresh("ref")
    first, second = (demo.send(ask(api, fresh(), f"probe:ref={ref}")) for _ in range(2))
    assert id_of(api, first) != id_of(api, second)
    assert demo.executions(ref) == 2


def test_headers_are_replayed_in_their_order(demo: DemoServer) -> None:
    """Location comes again; what is added is only the marker and that nobody may cache it."""
    request = ask("ietf", fresh())
    first, again = demo.send(request), demo.send(request)
    assert first.headers["location"] == again.headers["location"] == f"/orders/{id_of('ietf', first)}"
    added = {"cache-control", "idempotency-replayed"}
    kept = [pair for pair in again.headers.raw if pair[0].decode().lower() not in added | {"date"}]
    assert kept == [pair for pair in first.headers.raw if pair[0].lower() != b"date"]


@pytest.mark.parametrize("api", MISMATCH)
def test_another_body_under_the_key_is_a_mismatch(demo: DemoServer, api: str) -> None:
    """It is refused in the dialect's own way and runs nothing."""
    key, ref = fresh(), fresh("ref")
    first = demo.send(ask(api, key, f"probe:ref={ref}"))
    other = demo.send(ask(api, key, f"probe:ref={ref} and another amount"))
    status, recognised = MISMATCH[api]
    assert (first.is_success, other.status_code) == (True, status)
    assert recognised(other.json())
    assert id_of(api, first) not in other.text
    assert demo.executions(ref) == 1


@pytest.mark.parametrize("api", MISMATCH)
def test_another_caller_with_the_key_is_another_tenant(demo: DemoServer, api: str) -> None:
    """The same key from somebody else is an operation of its own, and shows nothing of the first."""
    key, ref = fresh(), fresh("ref")
    alice = demo.send(ask(api, key, f"probe:ref={ref}"))
    bob = demo.send(ask(api, key, f"probe:ref={ref}", caller="bob"))
    assert id_of(api, alice) != id_of(api, bob)
    assert alice.status_code == bob.status_code
    assert demo.executions(ref) == 2


@pytest.mark.parametrize("api", KINDS)
def test_a_request_without_a_caller_is_401_in_the_dialects_shape(demo: DemoServer, api: str) -> None:
    """Nobody's key is nobody's operation."""
    ref = fresh("ref")
    request = ask(api, fresh(), f"probe:ref={ref}")
    del request.headers[KINDS[api].caller]
    refused = demo.send(request)
    assert refused.status_code == 401
    assert refused.json()
    assert demo.executions(ref) == 0


@pytest.mark.parametrize("api", ["ietf", "square"])
def test_a_key_is_required_where_the_dialect_says_so(demo: DemoServer, api: str) -> None:
    """IETF orders and Square payments without a key are 400 and run nothing."""
    ref = fresh("ref")
    assert demo.send(ask(api, None, f"probe:ref={ref}")).status_code == 400
    assert demo.executions(ref) == 0


@pytest.mark.parametrize("api", ["stripe", "adyen", "paypal"])
def test_without_a_key_every_request_runs(demo: DemoServer, api: str) -> None:
    """Where the key is optional nothing protects a request that has none."""
    ref = fresh("ref")
    for _ in range(2):
        assert demo.send(ask(api, None, f"probe:ref={ref}")).is_success
    assert demo.executions(ref) == 2


@pytest.mark.parametrize(("api", "field"), [("stripe", "amount"), ("square", "amount_money")])
def test_failed_validation_stores_nothing(demo: DemoServer, api: str, field: str) -> None:
    """A charge without its amount is a 400 before execution, and its key is as good as new for the corrected one."""
    key, ref = fresh(), fresh("ref")
    without: dict[str, Any] = {field: None}
    for _ in range(2):
        refused = demo.send(ask(api, key, f"probe:ref={ref}", **without))
        assert (refused.status_code, "idempotent-replayed" in refused.headers) == (400, False)
    assert demo.executions(ref) == 0
    assert demo.send(ask(api, key, f"probe:ref={ref}")).is_success
    assert demo.executions(ref) == 1


def test_a_charge_can_be_looked_up_by_its_owner_alone(demo: DemoServer) -> None:
    """GET answers 200 to the caller who made it, 404 to others, whatever key comes with it."""
    charge = id_of("stripe", demo.send(ask("stripe", fresh())))
    mine = demo.get(f"/v1/charges/{charge}", headers={"Authorization": "alice", "Idempotency-Key": "k"})
    other = demo.get(f"/v1/charges/{charge}", headers={"Authorization": "bob"})
    assert (mine.status_code, mine.json()["id"], mine.json()["object"]) == (200, charge, "charge")
    assert (other.status_code, other.json()["error"]["code"]) == (404, "resource_missing")


def test_a_key_is_ignored_on_delete(demo: DemoServer) -> None:
    """Deleting twice under one key runs twice and is answered alike; DELETE needs no key to be safe to repeat."""
    customer, ref = id_of("stripe-customers", demo.send(ask("stripe-customers", fresh()))), fresh("ref")
    headers = {"Authorization": "alice", "Idempotency-Key": fresh()}
    request = Ask("DELETE", f"/v1/customers/{customer}", headers, f"note=probe:ref={ref}".encode())
    first, again = demo.send(request), demo.send(request)
    assert first.json() == again.json() == {"id": customer, "object": "customer", "deleted": True}
    assert (first.status_code, again.status_code, demo.executions(ref)) == (200, 200, 2)
    assert "idempotent-replayed" not in again.headers


def token(demo: DemoServer, credentials: bytes, **form: str) -> httpx.Response:
    """Ask for a PayPal token."""
    headers = {"Authorization": "Basic " + base64.b64encode(credentials).decode()}
    return demo.http.post(f"{demo.url}/v1/oauth2/token", headers=headers, data=form)


def test_a_paypal_token_depends_on_the_client_id(demo: DemoServer) -> None:
    """The same client is the same caller each time it asks, and another client is another."""
    given = [token(demo, who, grant_type="client_credentials") for who in (b"a:1", b"a:2", b"b:1")]
    tokens = [one.json()["access_token"] for one in given]
    assert [one.status_code for one in given] == [200, 200, 200]
    assert tokens[0] == tokens[1] != tokens[2]
    key, ref = fresh(), fresh("ref")
    for one in tokens:
        assert demo.send(ask("paypal", key, f"probe:ref={ref}", caller=f"Bearer {one}")).is_success
    assert demo.executions(ref) == 2


def test_a_token_needs_a_client_and_a_grant(demo: DemoServer) -> None:
    """Without Basic credentials 401, with another grant 400, in the words of OAuth."""
    for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic %%%"}):
        nobody = demo.http.post(f"{demo.url}/v1/oauth2/token", headers=headers)
        assert (nobody.status_code, nobody.json()["error"]) == (401, "invalid_client")
    other = token(demo, b"a:1", grant_type="password")
    assert (other.status_code, other.json()["error"]) == (400, "unsupported_grant_type")
