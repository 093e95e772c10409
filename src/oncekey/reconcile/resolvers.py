"""Which function finds out about which operations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from oncekey.core.keys import endpoint_of
from oncekey.errors import ConfigurationError
from oncekey.reconcile.findings import Finding, Inquiry

Resolver = Callable[[Inquiry], Finding | Awaitable[Finding]]
R = TypeVar("R", bound=Resolver)

ANY = "*"
_PLACE = re.compile(r"\{(\w+)\}")
_ENDPOINT = re.compile(r"[A-Z]+ /\S*")


class Found(NamedTuple):
    """A resolver, and what its pattern names of the path."""

    resolver: Resolver
    place: Mapping[str, str]


class Resolvers:
    """Resolvers by endpoint: `POST /payments`, `POST /orders/{id}/refund`, or `*` for all that no other one fits."""

    def __init__(self) -> None:
        self._exact: dict[str, Resolver] = {}
        self._patterns: list[tuple[re.Pattern[str], Resolver]] = []
        self._any: Resolver | None = None

    def __call__(self, endpoint: str) -> Callable[[R], R]:
        """Register a function for an endpoint; written above it."""

        def register(resolver: R) -> R:
            self.add(endpoint, resolver)
            return resolver

        return register

    def add(self, endpoint: str, resolver: Resolver) -> None:
        """The same, called."""
        if not callable(resolver):
            raise ConfigurationError(f"{resolver!r} is no resolver: write a function of the inquiry")
        if endpoint == ANY:
            self._any = resolver
            return
        if not _ENDPOINT.fullmatch(endpoint):
            raise ConfigurationError(f"{endpoint!r} is no endpoint: write 'POST /payments', or '*' for all others")
        endpoint = endpoint_of(*endpoint.split(" ", 1))
        if _PLACE.search(endpoint):
            self._patterns.append((_pattern(endpoint), resolver))
        elif endpoint in self._exact:
            raise ConfigurationError(f"{endpoint} has a resolver already: one function answers for an endpoint")
        else:
            self._exact[endpoint] = resolver

    def find(self, endpoint: str) -> Found | None:
        """Who answers for an endpoint."""
        exact = self._exact.get(endpoint)
        if exact is not None:
            return Found(exact, {})
        for pattern, resolver in self._patterns:
            match = pattern.fullmatch(endpoint)
            if match is not None:
                return Found(resolver, match.groupdict())
        return Found(self._any, {}) if self._any is not None else None

    @property
    def awaited(self) -> bool:
        """Whether one of them is a coroutine function."""
        last = [self._any] if self._any is not None else []
        every = [*self._exact.values(), *(resolver for _, resolver in self._patterns), *last]
        return any(inspect.iscoroutinefunction(resolver) for resolver in every)

    def __len__(self) -> int:
        return len(self._exact) + len(self._patterns) + (self._any is not None)


def _pattern(endpoint: str) -> re.Pattern[str]:
    _, *parts = _PLACE.split("{_}" + endpoint)
    words = [f"(?P<{name}>[^/]+)" + re.escape(text) for name, text in zip(parts[::2], parts[1::2], strict=True)]
    words[0] = re.escape(parts[1])
    return re.compile("".join(words))
