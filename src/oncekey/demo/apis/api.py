"""What an API of the demo consists of, and what they share."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from oncekey.core.policy import Policy
from oncekey.demo.marks import Marks
from oncekey.demo.provider import Provider, Told
from oncekey.engine.operation import AsyncOperation
from oncekey.http.dialects import Dialect
from oncekey.http.messages import Reply, Request

# Short, so that a killed worker's key is seen to become unknown soon; it is renewed while a longer charge runs.
LEASE_FOR = 5.0
# Most SDKs give up on a 409 within a second or do not retry it at all, but wait a minute for an answer.
HOLD_FOR = 10.0

_UPPER = string.ascii_uppercase + string.digits
_MIXED = string.ascii_letters + string.digits


class Trouble(NamedTuple):
    """Something that an API refuses or that its provider failed at, before it has that API's shape."""

    status: int
    message: str
    code: str = ""
    field: str = ""


def reference_of(operation: str, attempt: int) -> str:
    """Our name for an attempt, as the provider knows it. To cancel it shuts its reference, so each has its own."""
    return f"{operation}.{attempt}"


def operation_in(reference: str) -> str:
    """Which operation a reference is of."""
    return reference.partition(".")[0]


class Refused(Exception):
    """Nothing was done: the request is not one that this API serves."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class Call(NamedTuple):
    """A whole request that was let in."""

    route: Route
    request: Request
    caller: str
    place: str
    fields: dict[str, Any]
    marks: Marks
    provider: Provider
    operation: AsyncOperation | None = None

    async def act(self, kind: str, object_: str, told: Told) -> Told:
        """Have the provider do something: one run, which may raise ProviderFailed."""
        deed, reference = (self.route.api.name, kind), ""
        if self.operation is not None:
            reference = reference_of(self.operation.id, self.operation.attempt)
        return await self.provider.act(deed, self.caller, self.marks, object_, told, reference)


# Reading a body and checking its fields come before the claim: a Refused there leaves no trace.
Run = Callable[[Call], Awaitable[Reply]]
Read = Callable[[bytes], dict[str, Any]]
Check = Callable[[dict[str, Any]], None]
Failure = Callable[[Trouble], Reply]


@dataclass(frozen=True, eq=False)
class Route:
    """One endpoint: what it checks before anything is claimed, and what it then does."""

    api: Api
    method: str
    path: str
    run: Run
    read: Read
    check: Check
    failure: Failure
    guarded: bool


@dataclass(frozen=True, eq=False)
class Api:
    """One dialect's API."""

    name: str
    dialect: Dialect
    failure: Failure
    read: Read
    caller_header: str = "Authorization"
    hold_for: float | None = HOLD_FOR
    routes: list[Route] = field(default_factory=list)

    @property
    def policy(self) -> Policy:
        """The dialect's own, with the demo's short lease."""
        return self.dialect.policy(lease_for=LEASE_FOR, wait_for=self.hold_for)

    def route(
        self,
        method: str,
        path: str,
        *,
        check: Check = lambda fields: None,
        read: Read | None = None,
        failure: Failure | None = None,
        guarded: bool = True,
    ) -> Callable[[Run], Run]:
        """Add an endpoint; written above the function that serves it."""

        def add(run: Run) -> Run:
            self.routes.append(
                Route(self, method, path, run, read or self.read, check, failure or self.failure, guarded)
            )
            return run

        return add


def begun(dialect: Dialect) -> Dialect:
    """The dialect for a service that validates before it claims: its 400 after that is an outcome like any other.

    As the dialect comes, a 400 is taken for failed validation and not stored.
    """
    single = {status: verdict for status, verdict in dialect.outcomes.single.items() if status != 400}  # noqa: PLR2004
    return replace(dialect, outcomes=replace(dialect.outcomes, single=single))


def read_json(body: bytes) -> dict[str, Any]:
    """A JSON object, as leniently as the standard library reads it; an empty body is an empty one."""
    if not body.strip():
        return {}
    try:
        value = json.loads(body)
    except RecursionError:
        raise Refused(Trouble(400, "The body is nested too deeply.", "json_too_deep")) from None
    except ValueError as wrong:
        raise Refused(Trouble(400, f"The body is not JSON: {wrong}.", "json_invalid")) from None
    if not isinstance(value, dict):
        raise Refused(Trouble(400, "The body is not a JSON object: send {...}.", "json_invalid"))
    return value


def upper_id(length: int) -> str:
    """A fresh random id of capitals and digits."""
    return "".join(secrets.choice(_UPPER) for _ in range(length))


def mixed_id(length: int) -> str:
    """A fresh random id of letters and digits."""
    return "".join(secrets.choice(_MIXED) for _ in range(length))


def text(value: Any, default: str) -> str:
    """A text to echo, if it is one."""
    return value if isinstance(value, str) else default
