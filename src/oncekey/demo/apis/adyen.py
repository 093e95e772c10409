"""Payments as Adyen's Checkout API has them: JSON in and out, the key in Idempotency-Key, the caller in X-API-Key."""

from __future__ import annotations

from typing import Any

from oncekey.demo.apis.api import Api, Call, Trouble, read_json, text, upper_id
from oncekey.demo.web import json_answer
from oncekey.http.dialects import dialect
from oncekey.http.messages import Reply

# Adyen says of these, by a header, that nothing was done and the same key may be used again.
_TRANSIENT = frozenset({408, 425, 429})


def failure(trouble: Trouble) -> Reply:
    """One flat error; a transient one says so in a header."""
    status = trouble.status
    transient = status >= 500 or status in _TRANSIENT  # noqa: PLR2004 - server errors
    code, kind = ("703", "internal") if transient else ("702", "validation")
    if status == 401:  # noqa: PLR2004
        code, kind = "000", "security"
    error = {"status": status, "errorCode": code, "message": trouble.message, "errorType": kind}
    more = [(b"transient-error", b"true")] if transient else []
    return json_answer(status, error | {"pspReference": upper_id(16)}, more)


ADYEN = Api("adyen", dialect("adyen"), failure, read_json, caller_header="X-API-Key")


@ADYEN.route("POST", "/v72/payments")
async def pay(call: Call) -> Reply:
    """Authorise a payment."""
    reference = upper_id(16)
    told: dict[str, Any] = {"pspReference": reference, "resultCode": "Authorised"}
    merchant = text(call.fields.get("reference"), "")
    if merchant:
        told["merchantReference"] = merchant
    return json_answer(200, await call.act("payment", reference, told))
