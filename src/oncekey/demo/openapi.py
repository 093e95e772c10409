"""The demo's OpenAPI document: every route, what it asks for, and every answer that it may give."""

from __future__ import annotations

from importlib import metadata
from typing import Any

Schema = dict[str, Any]

PROBLEM = "application/problem+json"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
BEARER: list[dict[str, list[str]]] = [{"caller": []}]
API_KEY: list[dict[str, list[str]]] = [{"adyenCaller": []}]
BASIC: list[dict[str, list[str]]] = [{"paypalClient": []}]

MARKS = (
    "Marks anywhere in the body steer the simulated provider: probe:ref=TOKEN counts this run, probe:delay=MS takes "
    "that long, probe:fail=STATUS fails after having begun, probe:fail-once=STATUS fails the first run only."
)

# Status -> why.
REFUSALS = {
    "400": "The request or its idempotency key is malformed, or (stripe, square, paypal) the key names another request",
    "401": "The request does not say who calls",
    "409": "A request with this key is being carried out, or its outcome is not known",
    "410": "The operation is done and its answer is no longer kept",
    "413": "The body is too large",
    "422": "The key names another request",
    "4XX": "The provider refused after it had begun (probe:fail)",
    "5XX": "The provider failed after it had begun (probe:fail), or records cannot be reached",
}


def text(**more: Any) -> Schema:
    """A text."""
    return {"type": "string", **more}


def obj(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object, open for more."""
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def ref(name: str) -> Schema:
    """A schema of the components."""
    return {"$ref": f"#/components/schemas/{name}"}


# ---- what answers look like --------------------------------------------------------------------------------------

SCHEMAS: dict[str, Schema] = {
    "Problem": obj(
        ("type", "title", "status", "detail"),
        type=text(format="uri-reference"),
        title=text(),
        status={"type": "integer"},
        detail=text(),
        retry=text(enum=["same-key-later", "new-key-safe", "never"]),
        retry_after={"type": "integer", "minimum": 1},
        rule=text(),
        operation=text(),
    ),
    "StripeError": obj(("error",), error=obj(("type", "message"), type=text(), message=text(), code=text())),
    "SquareErrors": obj(
        ("errors",),
        errors={
            "type": "array",
            "items": obj(("category", "code", "detail"), category=text(), code=text(), detail=text()),
        },
    ),
    "AdyenError": obj(
        ("status", "errorCode", "message", "errorType"),
        status={"type": "integer"},
        errorCode=text(),
        message=text(),
        errorType=text(),
        pspReference=text(),
    ),
    "PayPalError": obj(
        ("name", "message", "debug_id"),
        name=text(),
        message=text(),
        debug_id=text(),
        details={"type": "array", "items": obj(("issue",), issue=text(), description=text())},
    ),
    "OAuthError": obj(("error",), error=text(), error_description=text()),
    "Order": obj(("id", "object", "status"), id=text(), object=text(const="order"), status=text()),
    "Charge": obj(("id", "object", "amount"), id=text(), object=text(const="charge"), amount={"type": "integer"}),
    "Customer": obj(("id", "object"), id=text(), object=text(const="customer")),
    "Deleted": obj(("id", "object", "deleted"), id=text(), object=text(), deleted={"const": True}),
    "Payment": obj(("payment",), payment=obj(("id", "status"), id=text(), status=text())),
    "Authorised": obj(("pspReference", "resultCode"), pspReference=text(), resultCode=text()),
    "PayPalObject": obj(("id", "status"), id=text(), status=text()),
    "Token": obj(
        ("access_token", "token_type"), access_token=text(), token_type=text(), expires_in={"type": "integer"}
    ),
    "Executions": obj(("executions",), executions={"type": "integer", "minimum": 0}),
}

# ---- what requests look like -------------------------------------------------------------------------------------

ORDER = {"type": "object", "description": "Any JSON object.", "example": {"item": "tea", "note": "probe:ref=try-1"}}
CHARGE = obj(("amount",), amount={"type": "integer", "minimum": 1, "maximum": 999_999_999_999}, description=text())
CUSTOMER = obj(email=text(), description=text())
MONEY = obj(("amount",), amount={"type": "integer", "minimum": 1, "maximum": 2**53 - 1})
PAYMENT = obj(
    ("idempotency_key", "amount_money"),
    idempotency_key=text(minLength=1, maxLength=45, pattern="^[!-~]+$"),
    amount_money=MONEY,
)
GRANT = obj(("grant_type",), grant_type=text(const="client_credentials"))


def key(name: str, most: int, *, required: bool = False) -> Schema:
    """The header that carries the key."""
    pattern = '^(?!")[!-+\\--~]+$|^"[!#-\\[\\]-~]+"$' if required else "^[!-+\\--~]+$"
    schema = text(minLength=1, maxLength=most, pattern=pattern)
    return {"name": name, "in": "header", "required": required, "schema": schema}


PLACE = {"name": "id", "in": "path", "required": True, "schema": text(minLength=1)}


def body(media: str, schema: Schema, *, required: bool = True) -> Schema:
    """A request's body."""
    return {"required": required, "content": {media: {"schema": schema}}}


def answers(success: dict[str, str], error: str, statuses: str, media: str = JSON) -> Schema:
    """Responses: success statuses with their schema, and refusals in the API's shape; problems are never far."""
    found: Schema = {
        status: {"description": "Done, now or before", "content": {JSON: {"schema": ref(schema)}}}
        for status, schema in success.items()
    }
    for status in statuses.split():
        why = REFUSALS.get(status, "There is no such thing")
        found[status] = {"description": why, "content": {media: {"schema": ref(error)}}}
        if status == "404":
            found[status]["content"][PROBLEM] = {"schema": ref("Problem")}
    found["405"] = {"description": "Another method", "content": {PROBLEM: {"schema": ref("Problem")}}}
    return found


GUARDED = "400 401 409 410 413 422 4XX 5XX"


def _ietf() -> Schema:
    order = {"201": "Order"}
    create = {
        "operationId": "createOrder",
        "summary": "Place an order",
        "description": MARKS,
        "security": BEARER,
        "parameters": [key("Idempotency-Key", 255, required=True)],
        "requestBody": body(JSON, ORDER, required=False),
        "responses": answers(order, "Problem", GUARDED, PROBLEM),
    }
    find = {
        "operationId": "getOrder",
        "summary": "Look an order up",
        "security": BEARER,
        "responses": answers({"200": "Order"}, "Problem", "400 401 404 413", PROBLEM),
    }
    return {"/orders": {"post": create}, "/orders/{id}": {"parameters": [PLACE], "get": find}}


def _stripe() -> Schema:
    def create(name: str, schema: Schema, *, required: bool) -> Schema:
        return {
            "operationId": f"create{name}",
            "summary": f"Make a {name.lower()}",
            "description": MARKS,
            "security": BEARER,
            "parameters": [key("Idempotency-Key", 255)],
            "requestBody": body(FORM, schema, required=required),
            "responses": answers({"200": name}, "StripeError", GUARDED),
        }

    find = {
        "operationId": "getCharge",
        "summary": "Look a charge up",
        "security": BEARER,
        "responses": answers({"200": "Charge"}, "StripeError", "400 401 404 413"),
    }
    delete = {
        "operationId": "deleteCustomer",
        "summary": "Delete a customer; a key is ignored here",
        "security": BEARER,
        "responses": answers({"200": "Deleted"}, "StripeError", "400 401 404 413 4XX 5XX"),
    }
    return {
        "/v1/charges": {"post": create("Charge", CHARGE, required=True)},
        "/v1/charges/{id}": {"parameters": [PLACE], "get": find},
        "/v1/customers": {"post": create("Customer", CUSTOMER, required=False)},
        "/v1/customers/{id}": {"parameters": [PLACE], "delete": delete},
    }


def _square() -> Schema:
    create = {
        "operationId": "createPayment",
        "summary": "Take a payment; the key is in the body",
        "description": MARKS,
        "security": BEARER,
        "requestBody": body(JSON, PAYMENT),
        "responses": answers({"200": "Payment"}, "SquareErrors", GUARDED),
    }
    return {"/v2/payments": {"post": create}}


def _adyen() -> Schema:
    create = {
        "operationId": "authorisePayment",
        "summary": "Authorise a payment",
        "description": MARKS,
        "security": API_KEY,
        "parameters": [key("Idempotency-Key", 64)],
        "requestBody": body(JSON, {"type": "object"}, required=False),
        "responses": answers({"200": "Authorised"}, "AdyenError", GUARDED),
    }
    return {"/v72/payments": {"post": create}}


def _paypal() -> Schema:
    def create(name: str, summary: str) -> Schema:
        return {
            "operationId": name,
            "summary": summary,
            "description": MARKS,
            "security": BEARER,
            "parameters": [key("PayPal-Request-Id", 108)],
            "requestBody": body(JSON, {"type": "object"}, required=False),
            "responses": answers({"201": "PayPalObject", "200": "PayPalObject"}, "PayPalError", GUARDED),
        }

    token = {
        "operationId": "getToken",
        "summary": "Give the token of a client id; any secret will do",
        "security": BASIC,
        "requestBody": body(FORM, GRANT),
        "responses": answers({"200": "Token"}, "OAuthError", "400 401 413"),
    }
    refund = create("refundCapture", "Give money back")
    refund["responses"] |= answers({}, "PayPalError", "404")
    return {
        "/v1/oauth2/token": {"post": token},
        "/v2/checkout/orders": {"post": create("createCheckoutOrder", "Make an order")},
        "/v2/payments/captures/{id}/refund": {"parameters": [PLACE], "post": refund},
    }


def _probe() -> Schema:
    which = {"name": "ref", "in": "query", "required": True, "schema": text(minLength=1)}
    count = {
        "operationId": "countExecutions",
        "summary": "How often the provider really acted for a ref",
        "parameters": [which],
        "responses": answers({"200": "Executions"}, "Problem", "400", PROBLEM),
    }
    return {"/__probe__/executions": {"get": count}}


def document() -> Schema:
    """The whole document."""
    schemes = {
        "caller": {"type": "http", "scheme": "bearer", "description": "Any value; another value is another caller."},
        "adyenCaller": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "Any value."},
        "paypalClient": {"type": "http", "scheme": "basic", "description": "A client id and any secret."},
    }
    about = "One payments API in five dialects, each guarded by OnceKey: a retried write runs at most once."
    return {
        "openapi": "3.1.0",
        "info": {"title": "OnceKey demo", "version": metadata.version("oncekey"), "description": about},
        "paths": _ietf() | _stripe() | _square() | _adyen() | _paypal() | _probe(),
        "components": {"schemas": SCHEMAS, "securitySchemes": schemes},
    }
