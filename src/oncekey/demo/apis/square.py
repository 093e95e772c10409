"""Payments as Square has them: JSON in and out, the key in the body's idempotency_key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from oncekey.demo.apis.api import Api, Call, Refused, Trouble, begun, mixed_id, read_json, text
from oncekey.demo.web import json_answer
from oncekey.http.dialects import dialect
from oncekey.http.messages import Reply

# Status -> category and code.
_CODES = {
    400: ("INVALID_REQUEST_ERROR", "BAD_REQUEST"),
    401: ("AUTHENTICATION_ERROR", "UNAUTHORIZED"),
    402: ("PAYMENT_METHOD_ERROR", "CARD_DECLINED"),
    404: ("INVALID_REQUEST_ERROR", "NOT_FOUND"),
    413: ("INVALID_REQUEST_ERROR", "REQUEST_ENTITY_TOO_LARGE"),
    429: ("RATE_LIMIT_ERROR", "RATE_LIMITED"),
    500: ("API_ERROR", "INTERNAL_SERVER_ERROR"),
    503: ("API_ERROR", "SERVICE_UNAVAILABLE"),
    504: ("API_ERROR", "GATEWAY_TIMEOUT"),
}


def failure(trouble: Trouble) -> Reply:
    """A list of one error."""
    usual = _CODES[500] if trouble.status >= 500 else ("PAYMENT_METHOD_ERROR", "GENERIC_DECLINE")  # noqa: PLR2004
    category, code = _CODES.get(trouble.status, usual)
    error = {"category": category, "code": trouble.code or code, "detail": trouble.message}
    if trouble.field:
        error["field"] = trouble.field
    return json_answer(trouble.status, {"errors": [error]})


def read(body: bytes) -> dict[str, Any]:
    """JSON; Square's codes have no word for the ways in which it can be broken."""
    try:
        return read_json(body)
    except Refused as refused:
        raise Refused(refused.trouble._replace(code="BAD_REQUEST")) from None


def check(fields: dict[str, Any]) -> None:
    """A payment needs an amount of money."""
    money = fields.get("amount_money")
    if money is None:
        message = "A payment needs amount_money."
        raise Refused(Trouble(400, message, "MISSING_REQUIRED_PARAMETER", "amount_money"))
    if not isinstance(money, dict):
        raise Refused(Trouble(400, "amount_money is not an object.", "EXPECTED_OBJECT", "amount_money"))
    amount = money.get("amount")
    if not isinstance(amount, int) or isinstance(amount, bool) or not 0 < amount < 2**53:
        message = "amount_money.amount is a whole number of cents above 0."
        raise Refused(Trouble(400, message, "EXPECTED_INTEGER", "amount_money.amount"))


SQUARE = Api("square", begun(dialect("square")), failure, read)


@SQUARE.route("POST", "/v2/payments", check=check)
async def pay(call: Call) -> Reply:
    """Take a payment."""
    id_, now = mixed_id(32), datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    asked = call.fields["amount_money"]
    money = {"amount": asked["amount"], "currency": text(asked.get("currency"), "USD")}
    payment = {"id": id_, "created_at": now, "updated_at": now, "amount_money": money, "total_money": money}
    payment |= {"status": "COMPLETED", "source_type": "CARD", "location_id": "DEMO", "order_id": mixed_id(32)}
    return json_answer(200, await call.act("payment", id_, {"payment": payment}))
