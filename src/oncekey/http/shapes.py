"""Refusals in the providers' own words: what their SDKs read, so that each raises the exception it should.

A table per provider says which of its codes stands for which problem; a function writes the body. Members that a real
SDK requires are always there. Where a provider documents nothing, the code is its nearest one.
"""

from __future__ import annotations

from oncekey.http.problems import Fault, Shaped, json_bytes

# ---- Stripe: {"error": {"type", "code", "message", "doc_url"}} ---------------------------------------------------

# The SDK raises IdempotencyError for type idempotency_error at 400 and 404, and there only.
STRIPE_TYPES = {
    "key-reused": "idempotency_error",
    "in-progress": "idempotency_error",
    "retry-later": "idempotency_error",
    "outcome-unknown": "idempotency_error",
    "lease-lost": "idempotency_error",
    "answer-not-kept": "idempotency_error",
    "key-expired": "idempotency_error",
    "request-too-old": "idempotency_error",
    "attempts-exhausted": "idempotency_error",
    "not-executed": "api_error",
    "store-unavailable": "api_error",
    "record-unreadable": "api_error",
}
STRIPE_CODES = dict.fromkeys(("in-progress", "retry-later", "outcome-unknown", "lease-lost"), "idempotency_key_in_use")


def stripe(fault: Fault) -> Shaped:
    """One error object."""
    error = {"type": STRIPE_TYPES.get(fault.slug, "invalid_request_error"), "message": fault.detail}
    code = STRIPE_CODES.get(fault.slug)
    if code is not None:
        error["code"] = code
    error["doc_url"] = fault.type
    return (), json_bytes({"error": error})


# ---- Square: {"errors": [{"category", "code", "detail", "field"}]} -----------------------------------------------

SQUARE_CODES = {
    "key-missing": ("INVALID_REQUEST_ERROR", "MISSING_REQUIRED_PARAMETER"),
    "key-invalid": ("INVALID_REQUEST_ERROR", "INVALID_VALUE"),
    "key-repeated": ("INVALID_REQUEST_ERROR", "CONFLICTING_PARAMETERS"),
    "key-reused": ("INVALID_REQUEST_ERROR", "IDEMPOTENCY_KEY_REUSED"),
    "in-progress": ("API_ERROR", "CONFLICT"),
    "retry-later": ("API_ERROR", "CONFLICT"),
    "outcome-unknown": ("API_ERROR", "CONFLICT"),
    "lease-lost": ("API_ERROR", "CONFLICT"),
    "answer-not-kept": ("INVALID_REQUEST_ERROR", "GONE"),
    "key-expired": ("INVALID_REQUEST_ERROR", "GONE"),
    "request-too-old": ("INVALID_REQUEST_ERROR", "GONE"),
    "attempts-exhausted": ("INVALID_REQUEST_ERROR", "GONE"),
    "not-executed": ("API_ERROR", "SERVICE_UNAVAILABLE"),
    "body-too-large": ("INVALID_REQUEST_ERROR", "REQUEST_ENTITY_TOO_LARGE"),
    "body-incomplete": ("INVALID_REQUEST_ERROR", "BAD_REQUEST"),
    "caller-unknown": ("AUTHENTICATION_ERROR", "UNAUTHORIZED"),
    "request-refused": ("INVALID_REQUEST_ERROR", "BAD_REQUEST"),
    "store-unavailable": ("API_ERROR", "SERVICE_UNAVAILABLE"),
    "record-unreadable": ("API_ERROR", "SERVICE_UNAVAILABLE"),
}
SQUARE_RULES = {"too-long": "VALUE_TOO_LONG", "empty": "VALUE_EMPTY"}


def square(fault: Fault) -> Shaped:
    """A list of one error."""
    category, code = SQUARE_CODES[fault.slug]
    error = {"category": category, "code": SQUARE_RULES.get(fault.rule, code), "detail": fault.detail}
    if fault.slug.startswith("key-") and fault.place:
        error["field"] = fault.place
    return (), json_bytes({"errors": [error]})


# ---- Adyen: {"status", "errorCode", "message", "errorType", "pspReference"} --------------------------------------

# 704: already processed or in progress; what tells the two apart is the header transient-error. 703: cannot tell now.
ADYEN_CODES = {
    "key-missing": ("702", "validation"),
    "key-invalid": ("702", "validation"),
    "key-repeated": ("702", "validation"),
    "key-reused": ("704", "validation"),
    "in-progress": ("704", "validation"),
    "retry-later": ("704", "validation"),
    "outcome-unknown": ("704", "validation"),
    "lease-lost": ("704", "validation"),
    "answer-not-kept": ("704", "validation"),
    "key-expired": ("704", "validation"),
    "request-too-old": ("704", "validation"),
    "attempts-exhausted": ("704", "validation"),
    "not-executed": ("703", "internal"),
    "body-too-large": ("702", "validation"),
    "body-incomplete": ("702", "validation"),
    "caller-unknown": ("000", "security"),
    "request-refused": ("702", "validation"),
    "store-unavailable": ("703", "internal"),
    "record-unreadable": ("703", "internal"),
}


def adyen(fault: Fault) -> Shaped:
    """One flat error."""
    code, kind = ADYEN_CODES[fault.slug]
    error = {"status": fault.status, "errorCode": code, "message": fault.detail, "errorType": kind}
    error["pspReference"] = fault.operation
    return (), json_bytes(error)


# ---- PayPal: {"name", "message", "debug_id", "details": [{"issue", "description"}]} ------------------------------

PAYPAL_CODES = {
    "key-missing": ("INVALID_REQUEST", "PAYPAL_REQUEST_ID_REQUIRED"),
    "key-invalid": ("INVALID_REQUEST", "INVALID_PAYPAL_REQUEST_ID"),
    "key-repeated": ("INVALID_REQUEST", "INVALID_PAYPAL_REQUEST_ID"),
    "key-reused": ("INVALID_REQUEST", "DUPLICATE_REQUEST_ID"),
    "in-progress": ("RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS"),
    "retry-later": ("RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS"),
    "outcome-unknown": ("RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS"),
    "lease-lost": ("RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS"),
    "answer-not-kept": ("UNPROCESSABLE_ENTITY", "DUPLICATE_REQUEST_ID"),
    "key-expired": ("UNPROCESSABLE_ENTITY", "DUPLICATE_REQUEST_ID"),
    "request-too-old": ("UNPROCESSABLE_ENTITY", "DUPLICATE_REQUEST_ID"),
    "attempts-exhausted": ("UNPROCESSABLE_ENTITY", "DUPLICATE_REQUEST_ID"),
    "not-executed": ("SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE"),
    "body-too-large": ("INVALID_REQUEST", "REQUEST_BODY_TOO_LARGE"),
    "body-incomplete": ("INVALID_REQUEST", "MALFORMED_REQUEST"),
    "caller-unknown": ("AUTHENTICATION_FAILURE", "AUTHENTICATION_FAILURE"),
    "request-refused": ("INVALID_REQUEST", "MALFORMED_REQUEST"),
    "store-unavailable": ("SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE"),
    "record-unreadable": ("SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE"),
}


def paypal(fault: Fault) -> Shaped:
    """A name, and one detail with the issue."""
    name, issue = PAYPAL_CODES[fault.slug]
    detail = {"issue": issue, "description": fault.detail}
    if fault.slug.startswith("key-"):
        detail |= {"field": fault.place, "location": "header"}
    error = {"name": name, "message": fault.problem.title + ".", "debug_id": fault.operation, "details": [detail]}
    return (), json_bytes(error)


# ---- AWS JSON protocols: {"__type", "message"} and the same type in a header -------------------------------------

# TransactionInProgressException is the one that boto3 knows to try again, whatever the status.
AWS_TYPES = {
    "key-reused": "IdempotentParameterMismatchException",
    "in-progress": "TransactionInProgressException",
    "retry-later": "TransactionInProgressException",
    "outcome-unknown": "TransactionInProgressException",
    "lease-lost": "TransactionInProgressException",
    "answer-not-kept": "ConflictException",
    "key-expired": "ConflictException",
    "request-too-old": "ConflictException",
    "attempts-exhausted": "ConflictException",
    "not-executed": "ServiceUnavailableException",
    "body-too-large": "RequestEntityTooLargeException",
    "caller-unknown": "AccessDeniedException",
    "store-unavailable": "ServiceUnavailableException",
    "record-unreadable": "ServiceUnavailableException",
}


def aws(fault: Fault) -> Shaped:
    """A type and a message."""
    kind = AWS_TYPES.get(fault.slug, "ValidationException")
    return ((b"x-amzn-errortype", kind.encode()),), json_bytes({"__type": kind, "message": fault.detail})
