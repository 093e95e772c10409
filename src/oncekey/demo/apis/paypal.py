"""Checkout orders and refunds as PayPal has them: JSON in and out, the key in PayPal-Request-Id.

The token depends on the client id alone, so that a caller is the same one whichever worker gave the token and whenever.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any
from urllib.parse import parse_qsl

from oncekey.demo.apis.api import Api, Call, Refused, Trouble, read_json, upper_id
from oncekey.demo.web import json_answer
from oncekey.http.dialects import dialect
from oncekey.http.messages import Reply

TOKEN_FOR = 32_400
NO_STORE = [(b"cache-control", b"no-store")]

# Status -> name and issue.
_NAMES = {
    400: ("INVALID_REQUEST", "MALFORMED_REQUEST_JSON"),
    401: ("AUTHENTICATION_FAILURE", "INVALID_TOKEN"),
    404: ("RESOURCE_NOT_FOUND", "INVALID_RESOURCE_ID"),
    413: ("INVALID_REQUEST", "REQUEST_BODY_TOO_LARGE"),
    422: ("UNPROCESSABLE_ENTITY", "INSTRUMENT_DECLINED"),
    429: ("RATE_LIMIT_REACHED", "RATE_LIMIT_REACHED"),
    503: ("SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE"),
}


def failure(trouble: Trouble) -> Reply:
    """A name, and one detail with the issue."""
    usual = ("INTERNAL_SERVER_ERROR", "INTERNAL_SERVER_ERROR") if trouble.status >= 500 else _NAMES[422]  # noqa: PLR2004
    name, issue = _NAMES.get(trouble.status, usual)
    detail = {"issue": issue, "description": trouble.message}
    error = {"name": name, "message": trouble.message, "debug_id": upper_id(13).lower(), "details": [detail]}
    return json_answer(trouble.status, error)


def failure_of_grant(trouble: Trouble) -> Reply:
    """OAuth has a shape of its own."""
    kind = "invalid_client" if trouble.status == 401 else "invalid_request"  # noqa: PLR2004
    return json_answer(trouble.status, {"error": kind, "error_description": trouble.message}, NO_STORE)


def read_grant(body: bytes) -> dict[str, Any]:
    """The form of a token request; what is no form has no fields."""
    return dict(parse_qsl(body.decode("utf-8", "replace")))


PAYPAL = Api("paypal", dialect("paypal"), failure, read_json)


@PAYPAL.route("POST", "/v1/oauth2/token", read=read_grant, failure=failure_of_grant, guarded=False)
async def token(call: Call) -> Reply:
    """Give the token of a client id."""
    client = client_of(call.caller)
    if client is None:
        raise Refused(Trouble(401, "Send HTTP Basic with a client id and any secret."))
    if call.fields.get("grant_type") != "client_credentials":
        error = {"error": "unsupported_grant_type", "error_description": "Send grant_type=client_credentials."}
        return json_answer(400, error, NO_STORE)
    given = "A21AA" + hashlib.sha256(b"oncekey demo token\0" + client.encode()).hexdigest()
    told = {"scope": "https://uri.paypal.com/services/payments/payment", "access_token": given}
    told |= {"token_type": "Bearer", "app_id": "APP-DEMO"}
    return json_answer(200, told | {"expires_in": TOKEN_FOR, "nonce": upper_id(24)}, NO_STORE)


def client_of(authorization: str) -> str | None:
    """The client id of HTTP Basic credentials."""
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        client, colon, _ = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return client if client and colon else None


@PAYPAL.route("POST", "/v2/checkout/orders")
async def order(call: Call) -> Reply:
    """Make an order."""
    id_ = upper_id(17)
    status = "COMPLETED" if call.fields.get("payment_source") else "CREATED"
    told = {"id": id_, "status": status}
    return json_answer(201, await call.act("order", id_, told))


@PAYPAL.route("POST", "/v2/payments/captures/{id}/refund")
async def refund(call: Call) -> Reply:
    """Give money back."""
    id_ = upper_id(17)
    told = {"id": id_, "status": "COMPLETED"}
    return json_answer(201, await call.act("refund", id_, told))
