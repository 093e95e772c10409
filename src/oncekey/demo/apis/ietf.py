"""POST /orders: the IETF draft's Idempotency-Key in front of a plain JSON API. In flight it answers 409 at once."""

from __future__ import annotations

import secrets
from http import HTTPStatus

from oncekey.demo.apis.api import Api, Call, Refused, Trouble, read_json
from oncekey.demo.web import json_answer, problem
from oncekey.http.dialects import dialect
from oncekey.http.messages import Reply


def failure(trouble: Trouble) -> Reply:
    """An RFC 9457 problem."""
    try:
        title = HTTPStatus(trouble.status).phrase
    except ValueError:
        title = "Error"
    return problem(trouble.status, title, trouble.message)


IETF = Api("ietf", dialect("ietf"), failure, read_json, hold_for=None)


@IETF.route("POST", "/orders")
async def create(call: Call) -> Reply:
    """Place an order."""
    order = f"ord_{secrets.token_hex(12)}"
    told = await call.act("order", order, {"id": order, "object": "order", "status": "accepted"})
    return json_answer(201, told, [(b"location", f"/orders/{order}".encode())])


@IETF.route("GET", "/orders/{id}")
async def retrieve(call: Call) -> Reply:
    """Look an order up."""
    told = await call.provider.find(call.place, "order", call.caller)
    if told is None:
        raise Refused(Trouble(404, "You have no order of this id."))
    return json_answer(200, told)
