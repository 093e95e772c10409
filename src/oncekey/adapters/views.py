"""A view that is called with a request and returns a response, run in one transaction: what Flask and Django share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from oncekey.effects.link import drive
from oncekey.effects.transaction.guarding import Guarding, TransactionOperation
from oncekey.engine.events import log
from oncekey.errors import BodyIncomplete, OnceKeyError, RequestRefused
from oncekey.http.answer import refuse
from oncekey.http.messages import Headers, Reply, Request

if TYPE_CHECKING:
    from oncekey.effects.transaction.context import House
    from oncekey.http.exchange import Exchange

R = TypeVar("R")


class Answer(NamedTuple):
    """A response as it will be kept; a stream has no body."""

    status: int
    headers: Headers
    body: bytes | None


class Framework(NamedTuple, Generic[R]):
    """What a framework can do for us."""

    answer: Callable[[R], Answer]
    response: Callable[[Reply], R]
    mark: Callable[[R, Headers], None]
    spoilt: Callable[[], bool] = lambda: False


def exchange_of(house: House, request: Request, body: Callable[[], bytes]) -> Exchange | Reply | None:
    """The exchange of a request; its refusal; or None, if it has no key and needs none."""
    gate = house.gate
    # A key in a header is looked at before the body is read; a key in the body cannot be.
    found = gate.key(request) if gate.dialect.header is not None else ""
    if not isinstance(found, str):
        return found
    length = request.header(b"content-length")
    # With more digits than these it is too large anyway, and Python reads no number of any length.
    declared = int(length.lstrip(b"0")[:19] or b"0") if length.isdigit() else 0
    refusal = gate.too_large(declared)
    if refusal is None:
        request.body = body()
        refusal = gate.too_large(len(request.body))
    if refusal is None and len(request.body) < declared:
        short = f"the body has {len(request.body)} bytes of the {declared} that its content-length declares"
        refusal = refuse(gate.dialect, BodyIncomplete(f"{short}; nothing was done, send it again"))
    found = refusal or found or gate.key(request)
    return gate.prepare(request, found) if isinstance(found, str) else found


def refused(house: House, error: OnceKeyError) -> Reply:
    """The answer to what cannot be guarded."""
    if not isinstance(error, RequestRefused):
        log.error("a request was refused: %s", error)
    return refuse(house.gate.dialect, error)


def run(
    guarding: Guarding,
    connection: Any,
    view: Callable[[TransactionOperation], R],
    framework: Framework[R],
) -> R:
    """Claim, call the view, keep its answer, commit; and only then return what goes to the client."""
    reply = drive(guarding.enter(connection, awaited=False))
    if reply is not None or guarding.operation is None:
        return framework.response(reply)  # type: ignore[arg-type] # one of the two is there
    try:
        response = view(guarding.operation)
        answer = framework.answer(response)
    except BaseException as error:
        reply = drive(guarding.failed(error))
        if reply is None:
            raise
        return framework.response(reply)
    if framework.spoilt():
        drive(guarding.rolled_back())
        return response
    given = drive(guarding.answered(*answer))
    if isinstance(given, Reply):
        return framework.response(given)
    framework.mark(response, given)
    return response
