"""The provider's own word, sent to the shop: a signed webhook about a run that nobody was told of.

    curl -X POST 'http://127.0.0.1:8000/__probe__/webhook?ref=TOKEN'

has the provider tell what it did for TOKEN; the shop takes it at /webhooks/provider, checks the signature (Standard
Webhooks), and settles the operation by it, if it was unknown.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs

from oncekey.adapters.endpoint import AsgiEndpoint
from oncekey.demo.apis.api import operation_in
from oncekey.demo.ledger import Sent
from oncekey.demo.provider import Provider
from oncekey.demo.resolving import shaped
from oncekey.demo.web import json_answer, problem
from oncekey.engine.events import Sink
from oncekey.http.messages import Reply, Request
from oncekey.reconcile import About, Finding, Inquiry, Message, Rules, StandardWebhooks, Webhook
from oncekey.stores.contract import AsyncStore

RECEIVED_AT = "/webhooks/provider"
SENT_BY = "/__probe__/webhook"


def read(message: Message) -> About:
    """Which operation a message of the provider is about, and what it says of it."""
    data = message.json["data"]

    def landed(inquiry: Inquiry) -> Finding:
        return shaped(inquiry, data["told"], f"webhook {message.id}: run {data['run']}, {data['object']}")

    return About(operation_in(data["reference"]), landed)


class Webhooks(NamedTuple):
    """Both ends: the provider that sends, and the shop that receives. They share a secret, made at each start."""

    provider: Provider
    secret: bytes
    endpoint: AsgiEndpoint

    async def receive(self, request: Request) -> Reply:
        """The shop's end."""
        return await self.endpoint.reply(request)

    async def send(self, request: Request) -> Reply:
        """The provider's end: tell of the latest run for a ref, and what the shop answered."""
        refs = parse_qs(request.query.decode("latin-1")).get("ref", [])
        if len(refs) != 1:
            return problem(400, "Bad Request", f"Name one ref: POST {SENT_BY}?ref=TOKEN")
        run = await self.provider.sent(refs[0])
        if run is None:
            return problem(404, "Not Found", "The provider did nothing for this ref under a key, or failed at it.")
        answer = await self.receive(signed(self.secret, run))
        return json_answer(200, {"status": answer.status, "answer": json.loads(answer.body)})


def signed(secret: bytes, run: Sent) -> Request:
    """The provider's message, as it goes over the wire."""
    body = json.dumps({"type": "run.done", "data": run._asdict() | {"told": json.loads(run.told)}}).encode()
    name, at = f"msg_{run.run}", int(time.time())
    mac = hmac.new(secret, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
    headers = {"webhook-id": name, "webhook-timestamp": f"{at}", "webhook-signature": f"v1,{_text(mac)}"}
    lines = [(header.encode(), value.encode()) for header, value in headers.items()]
    return Request("POST", RECEIVED_AT, b"", [*lines, (b"content-type", b"application/json")], body)


def webhooks(
    provider: Provider, rules: Rules, store: Callable[[], AsyncStore], token: str, sinks: tuple[Sink, ...]
) -> Webhooks:
    """Both ends, on a secret that all workers of one run share."""
    secret = hashlib.sha256(b"the demo's webhooks" + token.encode()).digest()
    hook = Webhook(rules, StandardWebhooks(f"whsec_{_text(secret)}"), read, sinks)
    return Webhooks(provider, secret, AsgiEndpoint(hook, store))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
