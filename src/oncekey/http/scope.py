"""Whose key it is. The choice must be made: a default that shared keys between callers would leak answers.

    scope=by_header("Authorization")        a caller is whoever sends the same credential
    scope=by(lambda request: ...)           anything else: return a text that names the caller, or None to refuse
    scope=SHARED                            one namespace for all, said aloud

What is stored is a digest, never the credential.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from oncekey.http.messages import Request

Scope = Callable[["Request"], "str | None"]


@dataclass(frozen=True, slots=True)
class ByHeader:
    """The caller is the value of a header. Absent or repeated: refused."""

    name: bytes

    def __call__(self, request: Request) -> str | None:
        """The one value of the header, or None."""
        lines = request.lines(self.name)
        return lines[0].decode("latin-1") if len(lines) == 1 and lines[0] else None


@dataclass(frozen=True, slots=True)
class Shared:
    """All callers share one namespace: for a service with a single client, or keys that are secrets themselves."""

    def __call__(self, request: Request) -> str | None:
        """The same name for everybody."""
        return "shared"


SHARED = Shared()


def by_header(name: str) -> Scope:
    """Tell callers apart by a header such as Authorization or X-API-Key."""
    if not name or not name.isascii():
        raise ConfigurationError(f"by_header({name!r}) names no header: write by_header('Authorization')")
    return ByHeader(name.lower().encode())


def by(function: Scope) -> Scope:
    """Tell callers apart by a function of the request that returns a name, or None to refuse the request."""
    if not callable(function):
        raise ConfigurationError("by() takes a function of the request: write by(lambda request: ...)")
    return function


def required(scope: Scope | None) -> Scope:
    """The scope that was given; without one, say how to give it."""
    if scope is None:
        raise ConfigurationError(
            "scope= is missing: whose keys are these? Write scope=by_header('Authorization') to tell callers apart by "
            "a header, scope=by(function of the request) for anything else, or scope=SHARED if all callers may see "
            "each other's answers"
        )
    if not callable(scope):
        raise ConfigurationError(f"scope={scope!r} is no scope: write scope=by_header('Authorization')")
    if inspect.iscoroutinefunction(scope):
        raise ConfigurationError(
            f"scope={scope!r} must be awaited, and a caller's name is asked for without waiting: write it with def, "
            "and look the caller up before the request comes here"
        )
    return scope
