"""What the providers' own SDKs make of our refusals: their parsers, fed with our replies."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import botocore.parsers
import pytest
import stripe
from Adyen import AdyenClient
from Adyen.exceptions import AdyenAPIResponseError, AdyenAPIUnprocessableEntity
from botocore.retries.standard import ThrottledRetryableChecker
from paypalserversdk.exceptions.error_exception import ErrorException
from square.core.api_error import ApiError
from stripe._api_requestor import _APIRequestor

from oncekey.core.decision import Decision, InProgress, Mismatch, Refused, Unknown
from oncekey.core.record import Record, State
from oncekey.errors import BadKey, OnceKeyError, StoreUnavailable
from oncekey.http.answer import answer, refuse
from oncekey.http.dialects import dialect
from oncekey.http.messages import Reply

RECORD = Record(b"r" * 20, State.EXECUTING, 3, b"t" * 16, b"")
BUSY, REUSED, EXPIRED = InProgress(RECORD, 2000), Mismatch(RECORD), Refused(RECORD, "expired")
LOST, LONG, DOWN = Unknown(RECORD, 1), BadKey("too-long", "Long.", "Send less."), StoreUnavailable("x")
MISSING = BadKey("missing", "No key.", "Send one.")


def reply_of(name: str, case: Decision | OnceKeyError) -> Reply:
    """What we send in that case."""
    one = dialect(name)
    return refuse(one, case, spread=0) if isinstance(case, OnceKeyError) else answer(one, case, key="k1", spread=0)


def headers(reply: Reply) -> dict[str, str]:
    """Headers as SDKs get them."""
    return {name.decode(): value.decode() for name, value in reply.headers}


def raised_by_stripe(reply: Reply) -> Any:
    """The error that the SDK raises."""
    requestor = _APIRequestor._global_instance()
    body = json.loads(reply.body)
    try:
        requestor.handle_error_response(reply.body.decode(), reply.status, body, headers(reply), "V1")
    except stripe.StripeError as error:
        return error


@pytest.mark.parametrize(
    ("case", "kind", "code"),
    [
        (REUSED, stripe.IdempotencyError, None),
        (EXPIRED, stripe.IdempotencyError, None),
        (BUSY, stripe.APIError, "idempotency_key_in_use"),
        (LOST, stripe.APIError, "idempotency_key_in_use"),
        (LONG, stripe.InvalidRequestError, None),
        (DOWN, stripe.APIError, None),
    ],
)
def test_stripe(case: Any, kind: Any, code: Any) -> None:
    """A reused key is an IdempotencyError; one in use a 409 with its code; the message is for people."""
    error = raised_by_stripe(reply_of("stripe", case))
    assert type(error) is kind
    assert error.json_body["error"].get("code") == code
    assert error.user_message
    assert error.json_body["error"]["doc_url"].startswith("https://")


@pytest.mark.parametrize(
    ("case", "status", "category", "code", "field"),
    [
        (REUSED, 400, "INVALID_REQUEST_ERROR", "IDEMPOTENCY_KEY_REUSED", "idempotency_key"),
        (MISSING, 400, "INVALID_REQUEST_ERROR", "MISSING_REQUIRED_PARAMETER", "idempotency_key"),
        (LONG, 400, "INVALID_REQUEST_ERROR", "VALUE_TOO_LONG", "idempotency_key"),
        (BUSY, 409, "API_ERROR", "CONFLICT", None),
        (DOWN, 503, "API_ERROR", "SERVICE_UNAVAILABLE", None),
    ],
)
def test_square(case: Any, status: Any, category: Any, code: Any, field: Any) -> None:
    """One error with category, code, detail and field; Retry-After within what its SDK honours."""
    reply = reply_of("square", case)
    error = ApiError(status_code=reply.status, body=json.loads(reply.body)).errors[0]
    assert (reply.status, error.category, error.code, error.field) == (status, category, code, field)
    assert error.detail
    assert 1 <= int(headers(reply).get("retry-after", 1)) <= 60


@pytest.mark.parametrize(
    ("case", "kind", "code", "transient"),
    [
        (REUSED, AdyenAPIUnprocessableEntity, "704", None),
        (BUSY, AdyenAPIResponseError, "704", "true"),
        (LOST, AdyenAPIResponseError, "704", "true"),
        (DOWN, AdyenAPIResponseError, "703", "true"),
    ],
)
def test_adyen(case: Any, kind: Any, code: Any, transient: Any) -> None:
    """704 in flight with transient-error, 422 without it for a reused key, 703 when it cannot be told."""
    reply = reply_of("adyen", case)
    client = AdyenClient()
    with pytest.raises(AdyenAPIResponseError) as raised:
        client._handle_response("url", reply.body.decode(), "", reply.status, headers(reply))
    assert (type(raised.value), raised.value.error_code) == (kind, code)
    assert raised.value.headers.get("transient-error") == transient
    assert json.loads(reply.body)["status"] == reply.status


@pytest.mark.parametrize(
    ("case", "status", "name", "issue"),
    [
        (BUSY, 409, "RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS"),
        (MISSING, 400, "INVALID_REQUEST", "PAYPAL_REQUEST_ID_REQUIRED"),
        (REUSED, 400, "INVALID_REQUEST", "DUPLICATE_REQUEST_ID"),
        (DOWN, 503, "SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE"),
    ],
)
def test_paypal(case: Any, status: Any, name: Any, issue: Any) -> None:
    """An ErrorException with a name, a message, a debug id and one detail."""
    reply = reply_of("paypal", case)
    error = ErrorException("x", SimpleNamespace(text=reply.body.decode(), status_code=reply.status))
    assert (reply.status, error.name, error.details[0].issue) == (status, name, issue)
    assert error.message
    assert isinstance(error.debug_id or "", str)


@pytest.mark.parametrize(
    ("case", "status", "code", "retried"),
    [
        (REUSED, 400, "IdempotentParameterMismatchException", False),
        (BUSY, 400, "TransactionInProgressException", True),
        (LOST, 400, "TransactionInProgressException", True),
        (LONG, 400, "ValidationException", False),
        (DOWN, 503, "ServiceUnavailableException", False),
    ],
)
def test_aws(case: Any, status: Any, code: Any, retried: Any) -> None:
    """Botocore reads the type as the error's code, and tries again by code only where the key is in use."""
    reply = reply_of("aws", case)
    raw = {"status_code": reply.status, "headers": headers(reply), "body": reply.body}
    parsed = botocore.parsers.create_parser("json").parse(raw, cast("Any", None))
    assert (reply.status, parsed["Error"]["Code"], headers(reply)["x-amzn-errortype"]) == (status, code, code)
    assert parsed["Error"]["Message"]
    context: Any = SimpleNamespace(get_error_code=lambda: parsed["Error"]["Code"])
    assert ThrottledRetryableChecker().is_retryable(context) is retried
