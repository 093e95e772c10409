"""Where a provider wants its idempotency key, and how long it may be. A new provider is one more line."""

from __future__ import annotations

from typing import NamedTuple

from oncekey.errors import ConfigurationError

# A derived key has as many hexadecimal digits as the provider takes, within these.
SHORTEST, LONGEST = 36, 64


class Provider(NamedTuple):
    """Somebody who is called: the header for the key (None: it travels in the body), and the longest key allowed.

    `hosts` are the names under which it is known to live; a name with a dot in front stands for all that end so.
    """

    name: str
    header: str | None = "Idempotency-Key"
    longest: int = SHORTEST
    hosts: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """How long a derived key is made."""
        return max(SHORTEST, min(self.longest, LONGEST))


# Whoever is not in the table.
ANYBODY = Provider("")
PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider("stripe", longest=255, hosts=("api.stripe.com",)),
        Provider("square", None, 45, ("connect.squareup.com", "connect.squareupsandbox.com")),
        Provider("adyen", longest=64, hosts=(".adyen.com", ".adyenpayments.com")),
        Provider("paypal", "PayPal-Request-Id", 38, ("api-m.paypal.com", "api-m.sandbox.paypal.com")),
        Provider("checkout", "Cko-Idempotency-Key", hosts=("api.checkout.com", "api.sandbox.checkout.com")),
        Provider("mangopay", longest=36, hosts=("api.mangopay.com", "api.sandbox.mangopay.com")),
    )
}


def provider_of(named: str | Provider | None) -> Provider:
    """The provider of this name; nobody in particular for None."""
    if isinstance(named, Provider):
        return named
    if named is None:
        return ANYBODY
    if named not in PROVIDERS:
        raise ConfigurationError(
            f"provider={named!r} is not known: write one of {', '.join(PROVIDERS)}, or "
            f"Provider({named!r}, header='Idempotency-Key', longest=64)"
        )
    return PROVIDERS[named]


def provider_at(host: str) -> Provider:
    """The provider that lives there; nobody in particular if none is known to."""
    for provider in PROVIDERS.values():
        if any(host.endswith(known) if known.startswith(".") else host == known for known in provider.hosts):
            return provider
    return ANYBODY


__all__ = ["ANYBODY", "PROVIDERS", "Provider", "provider_at", "provider_of"]
