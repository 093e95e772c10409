"""What a transaction is asked to do, by whom and under which key: the same identity as a request over HTTP has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncekey.core.keys import endpoint_of, parse_key_text
from oncekey.effects.transaction.values import json_of
from oncekey.errors import ConfigurationError
from oncekey.http import messages
from oncekey.http.scope import Shared

if TYPE_CHECKING:
    from oncekey.http.exchange import Exchange
    from oncekey.http.gate import Gate

_ENDPOINT: Final = re.compile(r"([A-Z]+) (/.*)")


class Request(NamedTuple):
    """Texts, or, for a decorated function, functions of its arguments. The fingerprint is made of `body`."""

    key: str | Callable[..., str]
    operation: str
    caller: str | Callable[..., str] | None = None
    body: Any = None
    content_type: str = "application/json"

    def check(self) -> None:
        """Refuse what only a decorated function can have."""
        for name, value in (("key", self.key), ("caller", self.caller), ("body", self.body)):
            if callable(value):
                raise ConfigurationError(f"{name}= is a function: that is for a decorator; write its value here")

    def called(self, *args: Any, **kwargs: Any) -> Request:
        """The request of one call. What was asked is the arguments, unless something else is said."""
        told = {name: getattr(self, name) for name in ("key", "caller", "body")}
        given = {name: value(*args, **kwargs) if callable(value) else value for name, value in told.items()}
        if given["body"] is None:
            given["body"] = json_of([args, kwargs], "what the function was called with (or write body=)")
        return self._replace(**given)

    def exchange(self, gate: Gate) -> Exchange:
        """As it would have come over HTTP."""
        key = parse_key_text(self.key, gate.dialect.rule)
        found = _ENDPOINT.fullmatch(self.operation)
        method, path = (found[1], found[2]) if found else ("", self.operation)
        endpoint = endpoint_of(method, path) if found else self.operation
        body = self.body if isinstance(self.body, bytes) else json_of(self.body, "body=")
        headers = [(b"content-type", self.content_type.encode())]
        return gate.exchange(messages.Request(method, path, b"", headers, body), key, self._caller(gate), endpoint)

    def _caller(self, gate: Gate) -> str:
        if self.caller is None and isinstance(gate.scope, Shared):
            return "shared"
        if not isinstance(self.caller, str) or not self.caller:
            raise ConfigurationError(
                "caller= is missing: whose key is it? Write the name by which scope= knows the caller, or make the "
                "installation with scope=SHARED"
            )
        return self.caller
