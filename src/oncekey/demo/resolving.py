"""How the demo finds out about unknown outcomes: one resolver for each API, in that API's own shape of an answer.

All of them cancel first and read then. The provider is asked by the reference that the handler gave it, which names the
operation and the attempt: cancelling shuts that reference for good, and a retry comes with one of its own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from oncekey.demo.apis.api import reference_of
from oncekey.reconcile import Finding, Inquiry, Resolvers

if TYPE_CHECKING:
    from oncekey.demo.provider import Provider

Found = Callable[[Inquiry, dict[str, Any], str], Finding]


def ietf(inquiry: Inquiry, told: dict[str, Any], seen: str) -> Finding:
    """201 and where the order is."""
    return inquiry.landed(201, told, headers=[("location", f"/orders/{told['id']}")], seen=seen)


def stripe(inquiry: Inquiry, told: dict[str, Any], seen: str) -> Finding:
    """200 and the object: a charge or a customer."""
    return inquiry.landed(200, told, seen=seen)


def square(inquiry: Inquiry, told: dict[str, Any], seen: str) -> Finding:
    """200 and the payment, in its envelope."""
    return inquiry.landed(200, {"payment": told["payment"]}, seen=seen)


def adyen(inquiry: Inquiry, told: dict[str, Any], seen: str) -> Finding:
    """200, the reference and the result."""
    return inquiry.landed(200, told, seen=seen)


def paypal(inquiry: Inquiry, told: dict[str, Any], seen: str) -> Finding:
    """201 and the order or the refund; a replay of it is a 200, as the dialect has it."""
    return inquiry.landed(201, {"id": told["id"], "status": told["status"]}, seen=seen)


SHAPES: dict[str, Found] = {
    "POST /orders": ietf,
    "POST /v1/charges": stripe,
    "POST /v1/customers": stripe,
    "POST /v2/payments": square,
    "POST /v72/payments": adyen,
    "POST /v2/checkout/orders": paypal,
    "POST /v2/payments/captures/{id}/refund": paypal,
}


def shaped(inquiry: Inquiry, told: dict[str, Any], seen: str) -> Finding:
    """What the provider told, as an answer of the API that was asked."""
    for endpoint, found in SHAPES.items():
        fixed, place, _ = endpoint.partition("{")
        if inquiry.endpoint == endpoint or (place and inquiry.endpoint.startswith(fixed)):
            return found(inquiry, told, seen)
    return inquiry.unclear(f"{inquiry.endpoint} is no API of this demo")


def resolvers(provider: Provider) -> Resolvers:
    """The resolvers of all APIs, over this provider."""
    made = Resolvers()
    for endpoint, found in SHAPES.items():
        made.add(endpoint, _resolver(provider, found))
    return made


def _resolver(provider: Provider, found: Found) -> Callable[[Inquiry], Awaitable[Finding]]:
    async def resolve(inquiry: Inquiry) -> Finding:
        reference = reference_of(inquiry.id.hex(), inquiry.attempts)
        stopped = inquiry.cancelled(await provider.cancel(reference))
        run = await provider.run_of(reference)
        if run is None:
            return stopped.not_done(f"the provider has no run under {reference}")
        if run.fails_with is not None:
            return inquiry.unclear(f"run {run.run} failed with {run.fails_with} after it had begun")
        return found(inquiry, json.loads(run.told), f"run {run.run} of the provider, {run.object}")

    return resolve
