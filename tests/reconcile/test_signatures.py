"""Signatures of webhooks: the standard's own example, Stripe's own SDK, and everything that must not be believed."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from oncekey.errors import ConfigurationError
from oncekey.http.messages import Request
from oncekey.reconcile import SignatureRefused, StandardWebhooks, StripeSignature
from oncekey.reconcile.signatures import Signature

# The example of the specification's reference libraries.
SECRET, NOW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330
BODY = b'{"test": 2432232314}'
SIGNED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
OTHER = "whsec_" + "A" * 32
STRIPE = "whsec_test_secret"


def standard(
    signature: str = SIGNED, at: str = str(NOW), body: bytes = BODY, id_: str = "msg_p5jXN8AQM9LWM0D4loKWxJek"
) -> Request:
    """A message of Standard Webhooks."""
    headers = [(b"webhook-id", id_), (b"webhook-timestamp", at), (b"webhook-signature", signature)]
    return Request("POST", "/", b"", [(name, value.encode("latin-1")) for name, value in headers], body)


def stripe(header: str, body: bytes = BODY) -> Request:
    """A message of Stripe."""
    return Request("POST", "/", b"", [(b"stripe-signature", header.encode("latin-1"))], body)


def mac(secret: str = STRIPE, at: int = NOW, body: bytes = BODY) -> str:
    """Stripe's signature."""
    return hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()


def at(kind: type[Any], *secrets: str, now: float = NOW) -> Signature:
    """A check whose clock stands still."""
    made: Signature = kind(*secrets, clock=lambda: now)
    return made


def test_the_example_of_the_standard_fits() -> None:
    """Alone, among others, and while secrets are changed."""
    at(StandardWebhooks, SECRET).check(standard())
    at(StandardWebhooks, OTHER, SECRET).check(standard())
    at(StandardWebhooks, SECRET.removeprefix("whsec_")).check(standard(f"v1a,xyz {SIGNED} v1,bnVsbA=="))


@pytest.mark.parametrize(
    "request_",
    [
        standard(body=BODY + b" "),
        standard(id_="msg_other"),
        standard(at=str(NOW + 1)),
        standard(signature=""),
        standard(signature=SIGNED.removeprefix("v1,")),
        standard(signature=SIGNED.replace("v1,", "v1a,")),
        standard(signature="v1," + "\xff" * 44),
        standard(at="-" + str(NOW)),
        standard(at="9" * 400),
        standard(at=""),
        Request("POST", "/", b"", [], BODY),
        Request("POST", "/", b"", [*standard().headers, (b"webhook-id", b"x")], BODY),
        standard(signature=" ".join(["v1,AAAA"] * 16 + [SIGNED])),
    ],
)
def test_what_does_not_fit_is_refused(request_: Request) -> None:
    """Another body, id, time or secret, a header that is missing, doubled, garbage, or a flood."""
    with pytest.raises(SignatureRefused):
        at(StandardWebhooks, SECRET).check(request_)
    with pytest.raises(SignatureRefused):
        at(StandardWebhooks, OTHER).check(standard())


@pytest.mark.parametrize("kind", [StandardWebhooks, StripeSignature])
def test_a_message_that_was_caught_cannot_be_played_again(kind: type[Any]) -> None:
    """Five minutes early or late and it is refused; at the edge it is not."""
    request, secret = (standard(), SECRET) if kind is StandardWebhooks else (stripe(f"t={NOW},v1={mac()}"), STRIPE)
    for skew in (-300, 0, 300):
        at(kind, secret, now=NOW + skew).check(request)
    for skew in (-301, 301, 10**9):
        with pytest.raises(SignatureRefused):
            at(kind, secret, now=NOW + skew).check(request)


def test_stripes_form_is_that_of_its_sdk() -> None:
    """What we believe its SDK believes, and the reverse."""
    sdk = pytest.importorskip("stripe")
    header = f"t={NOW},v1={mac()},v0=abc"
    at(StripeSignature, STRIPE).check(stripe(header))
    assert sdk.WebhookSignature.verify_header(BODY.decode(), header, STRIPE, tolerance=None)
    at(StripeSignature, "whsec_old", STRIPE).check(stripe(f"t={NOW}, v1=00, v1={mac()}"))


@pytest.mark.parametrize(
    "header",
    [
        "",
        "t=1",
        f"v1={mac()}",
        f"t={NOW},t={NOW},v1={mac()}",
        f"t={NOW},v0={mac()}",
        f"t={NOW},v1={mac('x')}",
        f"t=x,v1={mac()}",
    ],
)
def test_stripes_garbage_is_refused(header: str) -> None:
    """No time, two times, another scheme, another secret."""
    with pytest.raises(SignatureRefused):
        at(StripeSignature, STRIPE).check(stripe(header))


@pytest.mark.parametrize("secrets", [(), ("",), ("whsec_???",)])
def test_a_webhook_needs_its_secret(secrets: tuple[str, ...]) -> None:
    """Without one everybody would be believed."""
    with pytest.raises(ConfigurationError):
        StandardWebhooks(*secrets)
    with pytest.raises(ConfigurationError):
        StripeSignature()
