"""Charges and customers as Stripe's v1 API has them: forms in, JSON out, the key in a bare Idempotency-Key."""

from __future__ import annotations

import re
import time
from typing import Any
from urllib.parse import parse_qsl

from oncekey.demo.apis.api import Api, Call, Refused, Trouble, begun, mixed_id
from oncekey.demo.web import json_answer
from oncekey.http.dialects import dialect
from oncekey.http.messages import Reply

_AMOUNT = re.compile(r"0*[1-9][0-9]{0,11}")
_METADATA = re.compile(r"metadata\[([^\[\]]+)\]")
_TYPES = {402: "card_error", 429: "rate_limit_error"}
_CODES = {402: "card_declined", 429: "rate_limit"}


def failure(trouble: Trouble) -> Reply:
    """One error object."""
    status = trouble.status
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")  # noqa: PLR2004 - server errors
    error = {"type": kind, "message": trouble.message}
    code = trouble.code or _CODES.get(status)
    if code:
        error["code"] = code
    if trouble.field:
        error["param"] = trouble.field
    return json_answer(status, {"error": error})


def read_form(body: bytes) -> dict[str, Any]:
    """A form; of equal names the last one counts."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError:
        raise Refused(Trouble(400, "The body is not a form in UTF-8.")) from None


def check_charge(fields: dict[str, Any]) -> None:
    """A charge needs an amount."""
    if "amount" not in fields:
        raise Refused(Trouble(400, "Missing required param: amount.", "parameter_missing", "amount"))
    if not _AMOUNT.fullmatch(fields["amount"]):
        message = "Invalid amount: write whole cents, above 0 and of at most 12 digits."
        raise Refused(Trouble(400, message, "parameter_invalid_integer", "amount"))


STRIPE = Api("stripe", begun(dialect("stripe")), failure, read_form)


@STRIPE.route("POST", "/v1/charges", check=check_charge)
async def charge(call: Call) -> Reply:
    """Charge a card."""
    fields, id_ = call.fields, f"ch_{mixed_id(24)}"
    amount = int(fields["amount"])
    told = {"id": id_, "object": "charge", "amount": amount, "amount_captured": amount, "captured": True}
    told |= {"currency": fields.get("currency", "usd"), "customer": fields.get("customer")}
    told |= {"paid": True, "status": "succeeded", "refunded": False} | _common(fields)
    return json_answer(200, await call.act("charge", id_, told))


@STRIPE.route("GET", "/v1/charges/{id}")
async def retrieve(call: Call) -> Reply:
    """Look a charge up."""
    return json_answer(200, await _found(call, "charge"))


@STRIPE.route("POST", "/v1/customers")
async def customer(call: Call) -> Reply:
    """Make a customer."""
    id_ = f"cus_{mixed_id(14)}"
    told = {"id": id_, "object": "customer", "email": call.fields.get("email"), "name": call.fields.get("name")}
    return json_answer(200, await call.act("customer", id_, told | _common(call.fields)))


@STRIPE.route("DELETE", "/v1/customers/{id}")
async def delete(call: Call) -> Reply:
    """Delete a customer. A key has no say here: deleting again is answered alike, and is another run."""
    found = await _found(call, "customer")
    told = {"id": found["id"], "object": "customer", "deleted": True}
    return json_answer(200, await call.act("customer.delete", found["id"], told))


async def _found(call: Call, kind: str) -> dict[str, Any]:
    told = await call.provider.find(call.place, kind, call.caller)
    if told is None:
        raise Refused(Trouble(404, f"No such {kind}: '{call.place}'", "resource_missing", "id"))
    return told


def _common(fields: dict[str, Any]) -> dict[str, Any]:
    metadata = {found[1]: value for name, value in fields.items() if (found := _METADATA.fullmatch(name))}
    described = {"description": fields.get("description"), "metadata": metadata}
    return described | {"created": int(time.time()), "livemode": False}
