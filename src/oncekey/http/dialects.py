"""The dialects that come with OnceKey, and the look-up by name. docs/dialects.md is this file as a table for readers.

Where a provider documents nothing, the reading that cannot double an effect is taken, and named in the comment.
"""

from __future__ import annotations

import difflib
from typing import Final

from oncekey.core.keys import KeyRule
from oncekey.errors import ConfigurationError
from oncekey.http import shapes
from oncekey.http.grammar import Dialect, Outcomes, Verdict
from oncekey.http.problems import Retry, problem_json

__all__ = ["ADYEN", "AWS", "DIALECTS", "IETF", "PAYPAL", "SQUARE", "STRIPE", "Dialect", "dialect"]

_DAY: Final = 86_400.0
_GONE: Final = ("answer-not-kept", "key-expired", "request-too-old", "attempts-exhausted")
_TRY_AGAIN = ((b"x-should-retry", b"true"),)
_DO_NOT = ((b"x-should-retry", b"false"),)
# Refused by validation, authentication or rate limits: the provider stores nothing and its key is as good as unused.
_NOT_STORED = dict.fromkeys((400, 401, 429), Verdict.FORGOTTEN) | dict.fromkeys((408, 425), Verdict.RELEASED)

IETF = Dialect(
    name="ietf",
    header="Idempotency-Key",
    methods=frozenset({"POST", "PATCH"}),
    shape=problem_json,
    media=b"application/problem+json",
    # The draft has no marker. This one is ours; OASIS-like and Stripe-like names mean other things.
    marker=((b"idempotency-replayed", b"true"),),
    # SDKs made by one widely used generator obey this header and otherwise leave a 409 alone.
    hints={Retry.SAME_KEY_LATER: _TRY_AGAIN, Retry.NEW_KEY_SAFE: _DO_NOT, Retry.NEVER: _DO_NOT},
    patience_for=5.0,
)

STRIPE = Dialect(
    name="stripe",
    header="Idempotency-Key",
    rule=KeyRule(quoting="literal"),
    required=False,
    endpoint="fingerprint",
    # Not 409 or 422: at those the SDK either retries or raises a plain APIError.
    statuses=dict.fromkeys(("key-reused", *_GONE), 400),
    shape=shapes.stripe,
    marker=((b"idempotent-replayed", b"true"),),
    echo="always",
    # On nothing else: the header also stops the retries of a 409.
    kept_error_hints=((b"stripe-should-retry", b"false"),),
    outcomes=Outcomes(server_errors=Verdict.KEPT, single=_NOT_STORED),
    # The SDK gives up after about 1.5 s of 409s and waits 80 s for an answer.
    patience_for=10.0,
)

SQUARE = Dialect(
    name="square",
    members=("idempotency_key",),
    methods=frozenset({"POST", "PUT"}),
    # The payments limit; other endpoints allow 64 to 255.
    rule=KeyRule(max_length=45, quoting="literal"),
    # 400 also for a mismatch: the SDK retries 409.
    statuses=dict.fromkeys(("key-reused", *_GONE), 400),
    shape=shapes.square,
    # What becomes of failures is not documented: 5xx may have taken effect, so it is unknown.
    outcomes=Outcomes(single=_NOT_STORED),
    patience_for=10.0,
)

ADYEN = Dialect(
    name="adyen",
    header="Idempotency-Key",
    rule=KeyRule(max_length=64, quoting="literal"),
    required=False,
    # The answer to a mismatch is not documented: 422 without transient-error tells the SDK not to try again.
    statuses=dict.fromkeys(_GONE, 422),
    shape=shapes.adyen,
    echo="always",
    hints={Retry.SAME_KEY_LATER: ((b"transient-error", b"true"),)},
    # transient-error: true is the declaration that the same key may be used again; a 5xx without it is unknown.
    outcomes=Outcomes(
        single={401: Verdict.FORGOTTEN, 403: Verdict.FORGOTTEN} | dict.fromkeys((408, 425, 429), Verdict.RELEASED),
        no_effect_header=(b"transient-error", b"true"),
    ),
    keep_for=7 * _DAY,
    # The SDK retries nothing, so being held is the only thing that helps.
    patience_for=20.0,
)

PAYPAL = Dialect(
    name="paypal",
    header="PayPal-Request-Id",
    # The limit of Orders v2; other APIs allow 38 to 1000.
    rule=KeyRule(max_length=108, quoting="literal"),
    required=False,
    # The answer to a mismatch is that of the v1 APIs: v2 documents none.
    statuses={"key-reused": 400} | dict.fromkeys(_GONE, 422),
    shape=shapes.paypal,
    replay_statuses={201: 200},
    # PayPal declares that a 5xx may be sent again under the same id.
    outcomes=Outcomes(
        server_errors=Verdict.RELEASED,
        single={401: Verdict.FORGOTTEN} | dict.fromkeys((408, 425, 429), Verdict.RELEASED),
    ),
    keep_for=_DAY / 4,
    patience_for=20.0,
)

AWS = Dialect(
    name="aws",
    members=(
        "ClientToken",
        "clientToken",
        "ClientRequestToken",
        "clientRequestToken",
        "IdempotencyToken",
        "idempotencyToken",
    ),
    methods=frozenset({"POST", "PUT"}),
    rule=KeyRule(max_length=64, quoting="literal"),
    required=False,
    # In progress is 400 as at DynamoDB: boto3 goes by the error's type, and leaves a 409 alone.
    statuses=dict.fromkeys(("key-reused", "in-progress", "retry-later", "outcome-unknown", "lease-lost"), 400)
    | dict.fromkeys(_GONE, 409),
    shape=shapes.aws,
    media=b"application/x-amz-json-1.1",
    # Services keep successes only; a 5xx may have taken effect, so it is unknown.
    outcomes=Outcomes(client_errors=Verdict.FORGOTTEN, single=dict.fromkeys((408, 425, 429), Verdict.RELEASED)),
    patience_for=20.0,
)

DIALECTS: dict[str, Dialect] = {one.name: one for one in (IETF, STRIPE, SQUARE, ADYEN, PAYPAL, AWS)}


def dialect(name: str) -> Dialect:
    """The dialect of that name."""
    found = DIALECTS.get(name)
    if found is None:
        near = difflib.get_close_matches(str(name).lower(), DIALECTS, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"write one of {', '.join(DIALECTS)}."
        raise ConfigurationError(
            f"dialect={name!r} is not known; {meant} To make your own, dataclasses.replace(dialect('ietf'), ...)"
        )
    return found
