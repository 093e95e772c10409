"""Whatever is sent, the answer is a refusal that says why, never a 500 and never a trace."""

from __future__ import annotations

import json
import socket

import pytest

from tests.demo.server import KINDS, DemoServer, ask, fresh

DEEP = b'{"a": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
ODD = [
    b"",
    b"{",
    b"[]",
    b'"text"',
    b"null",
    b"\xff\xfe\x00",
    b"7",
    DEEP,
    b'{"a": NaN}',
    b'{"a": "\\ud800"}',
    b"%%%=%&&",
]


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("api", KINDS)
def test_odd_bodies_are_never_a_500(demo: DemoServer, api: str, body: bytes) -> None:
    """Broken JSON, the wrong type, odd numbers and depth: refused or served."""
    answer = demo.send(ask(api, fresh())._replace(body=body))
    assert answer.status_code < 500
    assert answer.json()


@pytest.mark.parametrize("body", [b"{", b"[]", b"7", b"not json", b"amount=5"])
@pytest.mark.parametrize("api", ["ietf", "square", "adyen", "paypal"])
def test_what_is_no_json_object_is_400(demo: DemoServer, api: str, body: bytes) -> None:
    """The JSON APIs serve objects and nothing else."""
    assert demo.send(ask(api, fresh())._replace(body=body)).status_code == 400


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"n": 9007199254740992}', b'{"n": 9007199254740993}'),
        (b'{"n": 1, "n": 2}', b'{"n": 2}'),
        (b'{"n": NaN}', b'{"n": null}'),
        (b'{"n": "\\ud800"}', b'{"n": "\\ud801"}'),
    ],
)
def test_odd_json_is_never_taken_for_another(demo: DemoServer, first: bytes, second: bytes) -> None:
    """Two bodies that a careless parser makes equal are a mismatch."""
    request = ask("ietf", fresh())
    assert demo.send(request._replace(body=first)).status_code == 201
    assert demo.send(request._replace(body=second)).status_code == 422


@pytest.mark.parametrize("amount", ["0", "-5", "5.5", "abc", "", "9" * 400])
def test_a_charge_needs_a_sensible_amount(demo: DemoServer, amount: str) -> None:
    """What is no whole number of cents is named and refused."""
    answer = demo.send(ask("stripe", fresh(), amount=amount))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "amount")


@pytest.mark.parametrize("money", [5, "5", [], {}, {"amount": "5"}, {"amount": 0}, {"amount": True}, {"amount": 1.5}])
def test_a_payment_needs_sensible_money(demo: DemoServer, money: object) -> None:
    """The same for Square's amount of money."""
    answer = demo.send(ask("square", fresh(), amount_money=money))
    assert (answer.status_code, answer.json()["errors"][0]["category"]) == (400, "INVALID_REQUEST_ERROR")


@pytest.mark.parametrize("key", ["", '"', "a b", "a,b", "k" * 256])
def test_malformed_keys_are_400_with_the_rule(demo: DemoServer, key: str) -> None:
    """The problem names the broken rule and what to send."""
    answer = demo.send(ask("ietf", key))
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
    assert answer.json()["retry"] in {"new-key-safe", "never"}


@pytest.mark.parametrize(("api", "key"), [("ietf", "k1"), ("adyen", "k2"), ("adyen", None)])
def test_a_body_over_the_cap_is_413(demo: DemoServer, api: str, key: str | None) -> None:
    """It is refused before anything is claimed or run, with a key and without."""
    ref = fresh("ref")
    request = ask(api, key, f"probe:ref={ref}", filling="x" * (1 << 20))
    answer = demo.send(request)
    assert (answer.status_code, answer.json()["status"], demo.executions(ref)) == (413, 413, 0)


def test_unknown_paths_are_404_problems(demo: DemoServer) -> None:
    """Below the known paths too."""
    for path in ("/nothing", "/v1", "/orders/", "/orders/a/b", "/static/../app.py", "/__probe__", "//orders", "/%00"):
        answer = demo.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/orders", "POST"),
        ("PUT", "/v1/charges", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("POST", "/v1/customers/cus_1", "DELETE"),
        ("OPTIONS", "/v2/payments", "POST"),
        ("BREW", "/", "GET, HEAD"),
    ],
)
def test_wrong_methods_are_405_with_the_right_ones(demo: DemoServer, method: str, path: str, allow: str) -> None:
    """Allow names what the path serves."""
    answer = demo.http.request(method, demo.url + path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)
    assert answer.json()["status"] == 405


def test_a_truncated_upload_is_not_executed(demo: DemoServer) -> None:
    """A client that leaves before its last byte has sent nothing, and its key is free."""
    ref, request = fresh("ref"), ask("ietf", fresh())
    body = json.dumps({"note": f"probe:ref={ref}"}).encode() + b" "  # without its last byte it reads just as well
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    with socket.create_connection(("127.0.0.1", demo.port)) as connection:
        connection.sendall(f"POST /orders HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode())
        connection.sendall(body[:-1])
    answer = demo.send(request._replace(body=body))
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, False)
    assert demo.executions(ref) == 1


@pytest.mark.parametrize("query", ["", "?ref=a&ref=b", "?other=1"])
def test_a_probe_names_one_ref(demo: DemoServer, query: str) -> None:
    """Anything else is a 400; an unknown ref has no executions."""
    assert demo.get(f"/__probe__/executions{query}").status_code == 400
    assert demo.get("/__probe__/executions?ref=nobody").json() == {"executions": 0}
