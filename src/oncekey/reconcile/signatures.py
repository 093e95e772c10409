"""Whether a webhook comes from who it says: Standard Webhooks, and Stripe's own form. HMAC-SHA256, in constant time.

Both sign an instant with the body, so that a message that was caught cannot be played again later. Several secrets may
be valid at a time, so that they can be changed: give the new one and the old one until the old one is gone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from oncekey.errors import ConfigurationError, OnceKeyError
from oncekey.http.messages import Request

# What both standards recommend: five minutes either way.
WINDOW_FOR = 300.0
PREFIX = "whsec_"
# Signatures in one header that are looked at: a few for a change of secrets, and no work for a flood.
MOST = 16


class SignatureRefused(OnceKeyError):
    """The webhook is not signed, not by who we know, or not now."""

    status = 401


class Signature(Protocol):
    """Checks a webhook; raises SignatureRefused."""

    def check(self, request: Request) -> None:
        """Whether it may be believed."""
        ...


class StandardWebhooks:
    """Headers `webhook-id`, `webhook-timestamp`, `webhook-signature`; secrets are `whsec_` and base64."""

    def __init__(self, *secrets: str, window_for: float = WINDOW_FOR, clock: Callable[[], float] = time.time) -> None:
        self._keys = [_decoded(secret) for secret in _given(secrets)]
        self.window_for = window_for
        self.clock = clock

    def check(self, request: Request) -> None:
        """Whether it may be believed."""
        id_, at, signed = (_line(request, name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature"))
        _check_time(at, self.clock(), self.window_for)
        given = [text.removeprefix("v1,") for text in signed.split(" ") if text.startswith("v1,")]
        content = f"{id_}.{at}.".encode("latin-1") + request.body
        _check_any(given, (base64.b64encode(mac).decode() for mac in _macs(self._keys, content)))


class StripeSignature:
    """Header `Stripe-Signature: t=...,v1=...`; secrets are used as they are, `whsec_` and all."""

    def __init__(self, *secrets: str, window_for: float = WINDOW_FOR, clock: Callable[[], float] = time.time) -> None:
        self._keys = [secret.encode() for secret in _given(secrets)]
        self.window_for = window_for
        self.clock = clock

    def check(self, request: Request) -> None:
        """Whether it may be believed."""
        pairs = [part.strip().partition("=") for part in _line(request, "stripe-signature").split(",")]
        times = [value for name, _, value in pairs if name == "t"]
        if len(times) != 1:
            raise SignatureRefused("the signature has no single time")
        _check_time(times[0], self.clock(), self.window_for)
        content = times[0].encode("latin-1") + b"." + request.body
        given = [value for name, _, value in pairs if name == "v1"]
        _check_any(given, (mac.hex() for mac in _macs(self._keys, content)))


def _given(secrets: tuple[str, ...]) -> tuple[str, ...]:
    if not secrets or not all(isinstance(secret, str) and secret for secret in secrets):
        raise ConfigurationError("a webhook needs its secret: write it as your provider shows it, such as 'whsec_...'")
    return secrets


def _decoded(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError("a secret of Standard Webhooks is whsec_ and base64: this one is not") from None


def _line(request: Request, name: str) -> str:
    lines = request.lines(name.encode())
    if len(lines) != 1:
        raise SignatureRefused(f"the header {name} is missing, or comes twice")
    return lines[0].decode("latin-1")


def _check_time(text: str, now: float, window_for: float) -> None:
    if not (text.isascii() and text.isdigit()) or abs(now - int(text[:16])) > window_for:
        raise SignatureRefused("the signature's time is not now")


def _macs(keys: Iterable[bytes], content: bytes) -> Iterable[bytes]:
    return (hmac.new(key, content, hashlib.sha256).digest() for key in keys)


def _check_any(given: list[str], wanted: Iterable[str]) -> None:
    # Every pair is compared, so that the time tells neither which secret fits nor how far a guess came.
    shown = [text.encode("latin-1") for text in given[:MOST]]
    if not sum(hmac.compare_digest(one, other.encode()) for other in wanted for one in shown):
        raise SignatureRefused("no signature fits")
