"""Webhooks are signed as Standard Webhooks says, and only a 2xx is a confirmation."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from standardwebhooks import Webhook

from oncekey.effects.brokers.publishers import open_publisher
from oncekey.effects.outbox import Outgoing
from oncekey.errors import BrokerUnavailable, ConfigurationError, MessageRefused

SECRET = "whsec_" + base64.b64encode(b"x" * 24).decode()
OTHER = "whsec_" + base64.b64encode(b"y" * 24).decode()


class Endpoint(ThreadingHTTPServer):
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks?token=secret"


class Receiver(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        status, headers = self.server.answers.pop(0) if self.server.answers else (204, {})
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("ONCEKEY_WEBHOOK_SECRET", f"{SECRET} {OTHER}")
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_another_implementation_accepts_the_signature(endpoint: Endpoint) -> None:
    """With either secret while they change; the id is the message's, however often it comes."""
    publisher = open_publisher(endpoint.url)
    await publisher.open()
    message = Outgoing(
        "id-1", "orders", '{"name": "ä"}'.encode(), {"trace": "x", "Webhook-Id": "mine"}, "A-1", "Placed"
    )
    await publisher.publish(message)
    await publisher.publish(message)
    await publisher.close()
    for headers, body in endpoint.got:
        for secret in (SECRET, OTHER):
            assert Webhook(secret).verify(body, headers) == {"name": "ä"}
        assert (headers["webhook-id"], headers["oncekey-id"]) == ("id-1", "id-1")
        assert (headers["trace"], headers["oncekey-topic"], headers["oncekey-type"]) == ("x", "orders", "Placed")
    assert len(endpoint.got) == 2


@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        (400, {}, MessageRefused),
        (500, {}, MessageRefused),
        (301, {"location": "/elsewhere"}, MessageRefused),
        (410, {}, MessageRefused),
        (429, {"retry-after": "7"}, BrokerUnavailable),
        (503, {}, BrokerUnavailable),
    ],
)
async def test_anything_else_is_no_confirmation(
    endpoint: Endpoint, status: int, headers: dict[str, str], kind: type[Any]
) -> None:
    """A refusal is held against the message; an endpoint that is away or busy is waited for, as long as it says."""
    endpoint.answers = [(status, headers)]
    publisher = open_publisher(endpoint.url)
    await publisher.open()
    with pytest.raises(kind) as told:
        await publisher.publish(Outgoing("1", "orders", b"{}"))
    await publisher.close()
    assert str(status) in str(told.value)
    assert "secret" not in str(told.value)
    assert told.value.after == (7 if headers.get("retry-after") else None)
    assert getattr(told.value, "final", False) is (status == 410)


async def test_an_endpoint_that_is_away_is_waited_for(endpoint: Endpoint) -> None:
    """Nobody listens there."""
    publisher = open_publisher("http://127.0.0.1:1/hooks?token=secret")
    await publisher.open()
    with pytest.raises(BrokerUnavailable, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        await publisher.publish(Outgoing("1", "orders", b"{}"))
    await publisher.close()


@pytest.mark.parametrize(
    ("secret", "url", "says"),
    [
        ("", "https://h/", "set ONCEKEY_WEBHOOK_SECRET"),
        ("whsec_%%%", "https://h/", "is no secret"),
        ("whsec_c2hvcnQ=", "https://h/", "too short"),
        (SECRET, "https://user:secret@h/", "without a user or a password"),
    ],
)
def test_a_wrong_secret_or_address_is_told(secret: str, url: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without repeating it."""
    monkeypatch.setenv("ONCEKEY_WEBHOOK_SECRET", secret)
    with pytest.raises(ConfigurationError) as told:
        open_publisher(url)
    assert says in str(told.value)
    assert not secret or secret not in str(told.value)
