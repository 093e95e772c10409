"""To settle unknown outcomes by what their receivers tell: webhooks, and anything else that knows a reference.

A provider's message about an effect is the best evidence there is. It may come before our own handler has ended, twice,
late, or about something that is none of ours; so it changes only what is unknown, and everything else is answered.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, cast

from oncekey.core.keys import key_ref
from oncekey.core.record import IN_PROGRESS, Seen, State
from oncekey.engine.events import Events, Sink
from oncekey.engine.journals import journal_of
from oncekey.errors import ConfigurationError, OnceKeyError
from oncekey.http.messages import Request
from oncekey.http.plain import Steps, json_reply, looking, plain_problem
from oncekey.operations.looking import ID_DIGITS, id_of
from oncekey.reconcile.findings import Finding, Inquiry, Landed, Unclear
from oncekey.reconcile.rounds import failed, judged, tell
from oncekey.reconcile.signatures import Signature, SignatureRefused
from oncekey.reconcile.triage import Case, Ending, Rules
from oncekey.stores.contract import AsyncStore, Store

log = logging.getLogger("oncekey.reconcile")

# A reference that is no id is looked for in the journals of what is unfinished: in so many, and in not one more.
LOOKED, PAGE = 5000, 500
TRIES = 3
AGAIN = [(b"retry-after", b"30")]


class Known(StrEnum):
    """What became of a message."""

    SETTLED = "settled"  # the outcome was unknown, and is known now
    KNOWN = "known"  # it was known already
    IN_PROGRESS = "in_progress"  # its own attempt is still at work, and has the first word: tell it again later
    UNCLEAR = "unclear"  # the message does not decide it
    CONFLICT = "conflict"  # it was recorded that nothing happened: somebody must look
    ABSENT = "absent"  # there is no such operation here
    IGNORED = "ignored"  # the message is about nothing of ours


class About(NamedTuple):
    """Which operation a message is about, and what it says of it.

    `operation` is the handler's `operation.id`; or a key that it sent with a call, or the reference that it noted of
    one, as it stands in the message. `finding` gets the inquiry and answers as a resolver does.
    """

    operation: str
    finding: Callable[[Inquiry], Finding]


def about_key(key: str, caller: str, endpoint: str, finding: Callable[[Inquiry], Finding]) -> About:
    """The same by the client's own key: `caller` is what the scope gave, `endpoint` "POST /payments"."""
    return About(id_of(key, caller, endpoint).hex(), finding)


@dataclass(frozen=True, slots=True)
class Message:
    """A webhook whose signature fits. `id` is its own name, where the sender gives one."""

    body: bytes
    id: str
    request: Request

    @property
    def json(self) -> Any:
        """The body read as JSON; what is none is refused with a 400."""
        try:
            return json.loads(self.body)
        except ValueError as wrong:
            raise NotReadable(f"The body is not JSON: {wrong}.") from wrong


class NotReadable(OnceKeyError):
    """The body is not what it should be."""

    status = 400


Reader = Callable[[Message], About | None]


@dataclass(frozen=True, slots=True)
class Webhook:
    """An endpoint for one sender: it checks the signature, has the message read, and settles what it is about."""

    rules: Rules
    signature: Signature
    reader: Reader
    sinks: tuple[Sink, ...] = ()

    def __call__(self, request: Request) -> Steps:
        """The reply to one request."""
        if request.method != "POST":
            return plain_problem(405, "Send it with POST.", [(b"allow", b"POST")])
        try:
            self.signature.check(request)
        except SignatureRefused as refused:
            log.warning("a webhook was refused: %s", refused)
            return plain_problem(401, "The signature does not fit.")
        try:
            about = self.reader(Message(request.body, _id_of(request), request))
        except NotReadable as wrong:
            return plain_problem(400, str(wrong))
        except (KeyError, IndexError, TypeError, ValueError) as wrong:
            log.warning("a webhook could not be read: %s: %s", type(wrong).__name__, wrong)
            return plain_problem(400, "The message has not the form that is read here.")
        known = (yield from settling(self.rules, about, self.sinks)) if about is not None else Known.IGNORED
        if known is Known.IN_PROGRESS:
            return plain_problem(503, "The operation is still at work. Send this again later.", AGAIN)
        return json_reply(200, {"outcome": known.value})


def _id_of(request: Request) -> str:
    lines = request.lines(b"webhook-id")
    return lines[0].decode("latin-1") if lines else ""


def settling(rules: Rules, about: About, sinks: tuple[Sink, ...] = ()) -> Generator[Callable[[Any], Any], Any, Known]:
    """Settle what a message is about, for either colour: it yields what to ask, as functions of the store."""
    seen: Seen | None = yield from _found(rules, about.operation)
    for _ in range(TRIES):
        if seen is None:
            return Known.ABSENT
        if seen.record.state is not State.UNKNOWN:
            return _as_it_stands(seen, rules, about)
        ending = yield from _settle(seen, rules, about)
        if ending is Ending.UNCLEAR:
            return Known.UNCLEAR
        if ending is not Ending.MOVED_ON:
            tell(Events(sinks), seen.record.id, ending)
            return Known.SETTLED
        seen = yield looking(seen.record.id)
    return Known.IN_PROGRESS


def settle(store: Store, rules: Rules, about: About, sinks: tuple[Sink, ...] = ()) -> Known:
    """The same, carried out on a store for threads."""
    steps, answer = settling(rules, about, sinks), None
    try:
        while True:
            answer = steps.send(answer)(store)
    except StopIteration as end:
        return cast("Known", end.value)


async def settle_async(store: AsyncStore, rules: Rules, about: About, sinks: tuple[Sink, ...] = ()) -> Known:
    """The same, carried out on a store for asyncio."""
    steps, answer = settling(rules, about, sinks), None
    try:
        while True:
            answer = await steps.send(answer)(store)
    except StopIteration as end:
        return cast("Known", end.value)


def _settle(seen: Seen, rules: Rules, about: About) -> Generator[Callable[[Any], Any], Any, Ending]:
    case = Case(seen, rules)
    finding = _said(case.inquiry({}), about)
    if isinstance(finding, Unclear):
        return Ending.UNCLEAR
    return (yield from case.settle(finding))


def _as_it_stands(seen: Seen, rules: Rules, about: About) -> Known:
    if seen.record.state in IN_PROGRESS:
        return Known.IN_PROGRESS
    if seen.record.state is not State.FAILED_RETRYABLE:
        return Known.KNOWN
    if not isinstance(_said(Case(seen, rules).inquiry({}), about), Landed):
        return Known.KNOWN
    log.error("operation %s has landed by a message, and was recorded as not done", key_ref(seen.record.id))
    return Known.CONFLICT


def _said(inquiry: Inquiry, about: About) -> Finding:
    try:
        return judged(inquiry, about.finding(inquiry))
    except Exception as error:  # noqa: BLE001 - a message that cannot be understood decides nothing
        return failed(inquiry, error)


def _found(rules: Rules, operation: str) -> Generator[Callable[[Any], Any], Any, Seen | None]:
    """By id; or among what is unfinished the one that called somebody under this key, or noted this reference."""
    if len(operation) == ID_DIGITS and not operation.strip("0123456789abcdef"):
        seen: Seen | None = yield looking(bytes.fromhex(operation))
        if seen is not None:
            return seen
    if not operation:
        raise ConfigurationError("the message names no operation: give About the reference that stands in it")
    after: str | None = None
    for _ in range(LOOKED // PAGE):
        page = yield _unknown_behind(after)
        for record in page.records:
            if _called(record, operation, rules):
                return Seen(record, page.now)
        after = page.after
        if after is None:
            return None
    return None


def _unknown_behind(after: str | None) -> Callable[[Any], Any]:
    return lambda store: store.scan((*IN_PROGRESS, State.UNKNOWN), after=after, limit=PAGE)


def _called(record: Any, key: str, rules: Rules) -> bool:
    try:
        return any(key in (call.key, call.reference) for call in journal_of(record, rules.sealer).calls)
    except OnceKeyError:
        return False
