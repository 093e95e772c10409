"""What a user says about the handler to try, and what a client of it gets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from oncekey.core.record import State
from oncekey.errors import ConfigurationError

PROBLEM = "idempotency-problem"


class Ask(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


Request = Callable[[str], Ask]


def post(
    path: str = "/",
    body: object = None,
    *,
    key_header: str = "Idempotency-Key",
    headers: Mapping[str, str] | None = None,
) -> Request:
    """A POST whose body is JSON (or these bytes), the same for every key. For another request write a function."""
    content = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
    fixed = {"content-type": "application/json"} | {name.lower(): value for name, value in (headers or {}).items()}

    def ask(key: str) -> Ask:
        return Ask("POST", path, (*fixed.items(), (key_header.lower(), key)), content)

    return ask


@dataclass(frozen=True)
class Trial:
    """An application behind OnceKey, the request to send it, and how its effects are counted.

    `effects` answers how many effects a key has had. It counts what happened in the world, so what it looks at must
    outlive the application: `make` is called once for each process life.
    """

    request: Request
    effects: Callable[[str], int]
    asgi: Any = None
    wsgi: Any = None

    def __post_init__(self) -> None:
        """Refuse what cannot be tried."""
        if (self.asgi is None) == (self.wsgi is None):
            raise ConfigurationError("a Trial needs one application: write asgi=app, or wsgi=app")
        for name in ("request", "effects"):
            if not callable(getattr(self, name)):
                raise ConfigurationError(f"a Trial's {name}= is a function of the key: write {name}=lambda key: ...")


Make = Callable[[str, Path], Trial]


class Got(NamedTuple):
    """What a client got: an answer, an exception out of the application (`raised`), or nothing.

    With it, what stands in the store, how many effects there are by now, and whether the handler `ran` for it.
    """

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    raised: str = ""
    state: State | None = None
    effects: int = 0
    whole: bool = False
    ran: bool = False

    @property
    def problem(self) -> str:
        """The name of the refusal, if it is one."""
        return next((value for name, value in self.headers if name == PROBLEM), "")

    @property
    def answered(self) -> bool:
        """Whether a whole answer came."""
        return self.status is not None and self.whole

    @property
    def final(self) -> bool:
        """Whether it is the operation's answer, which never changes again."""
        return self.answered and not self.problem and self.state is State.COMPLETED

    def __str__(self) -> str:
        if not self.answered:
            return self.raised or "nothing"
        return f"{self.status} {self.problem}".strip()


__all__ = ["Ask", "Got", "Make", "Request", "Trial", "post"]
