"""One guarded request, from its key to its definite answer: the part that all transports share.

A transport asks `Guard.of` whether a request is guarded, sends what `prepared` says, and drives `flow`, which yields
what is to be done and takes what came of it:

    Send     send the request once; give back a Reply, or Lost
    Wait     wait so long; give back nothing
    Disk     run this, which blocks until the disk has it; give back nothing

The flow returns the definite answer, or raises what is known instead.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from oncekey.client import keys
from oncekey.client.carriage import Carriage
from oncekey.client.errors import GaveUp, IntentReused, NothingSent, OutcomeUnknown, also
from oncekey.client.journal import CURRENT, Entry, Journal, Kept, Request, too_old
from oncekey.client.judging import Answer, Verdict, operation_of
from oncekey.client.machine import Attempts, Deliver, Known, Retries, Send, Sent, Stop, Wait
from oncekey.core.keys import made_at

_LONGEST = 1_000_000.0  # sockets take no longer time-out
FIRST_SENT = "Idempotency-First-Sent"
# Redirects that are no end of the operation: it goes on at another place.
KEEP_METHOD = frozenset({307, 308})
# Answers that are no end of it either: it needs other credentials, or somebody who looks.
_NO_END = {Verdict.DENIED: "denied", Verdict.STALE: "older than the server keeps answers"}


class Reply(NamedTuple):
    """A whole answer; `response` is the HTTP library's."""

    answer: Answer
    response: Any


class Lost(NamedTuple):
    """No answer, or a part of one."""

    sent: Sent
    error: Exception


class Disk(NamedTuple):
    """Something that the disk must have before the flow goes on."""

    write: Callable[[], object]


Flow = Generator[Send | Wait | Disk, Any, Any]


@dataclass(frozen=True)
class Terms:
    """How a transport treats requests. `foreign` is the HTTP library's own error, which ours then are as well."""

    retries: Retries = field(default_factory=Retries)
    carriage: Carriage = field(default_factory=Carriage)
    journal: Journal | None = None
    foreign: type[Exception] = Exception
    # Makes the library's response from a kept answer; without it, a finished intent is asked for again.
    rebuilt: Callable[[Kept], Any] | None = None


@dataclass
class Guard:
    """A request that carries a key. `prepared` is what to send."""

    terms: Terms
    prepared: Request
    key: str
    ours: bool  # made for this request, so that nobody can have sent it before
    entry: Entry | None = None
    known: Known = Known.NOTHING_SENT  # the most that may have happened until now
    first: bool = True  # the request that the user sends; not one that has followed from it

    @classmethod
    def of(cls, terms: Terms, request: Request, key: str = "") -> Guard | None:
        """The guard of a request; None where it has no key and needs none. `key` is one that is known already."""
        carriage = terms.carriage
        method = request.method.upper()
        given = _given(carriage, request) or key
        if not given and method not in carriage.methods:
            return None
        current = CURRENT.get()
        journal = terms.journal or (current.journal if current is not None else None)
        if journal is not terms.journal:
            terms = Terms(terms.retries, carriage, journal, terms.foreign, terms.rebuilt)
        key = given or (str(current) if current is not None else keys.new_key())
        entry = journal.look(key) if journal is not None and (given or current is not None) else None
        if current is not None and key == current:
            _one_request_only(entry, request)
            ours = current.first and entry is not None and entry.attempts == 0
        else:
            ours = not given
        known = Known.NOTHING_SENT if ours or entry is None else Known.MAYBE_DONE
        return cls(terms, _carrying(carriage, request, key, entry), key, ours, entry, known)

    def onward(self, request: Request) -> Guard:
        """The guard of the same operation's next request: a redirect within the origin, or one with credentials."""
        onward = _carrying(self.terms.carriage, request, self.key, self.entry)
        return replace(self, prepared=onward, first=False)

    def flow(self) -> Flow:
        """The conversation. It returns the library's response."""
        kept = self._kept()
        if kept is not None:
            return kept
        if self.terms.journal is not None:
            # Flushed before the first send: a killed client finds the key again.
            name = f"{self.prepared.method} {urlsplit(self.prepared.url).path}"
            yield Disk(partial(self.terms.journal.sending, self.key, self.prepared, name))
        attempts = Attempts(self.terms.retries, age=self._age())
        attempts.known = self.known
        reply: Reply | None = None
        lost: Lost | None = None
        while True:
            step: Send | Deliver | Wait | Stop = attempts.next(time.monotonic())
            if isinstance(step, Send):
                outcome = yield step
                reply, lost = (outcome, None) if isinstance(outcome, Reply) else (reply, outcome)
                step = self._judged(attempts, outcome)
                self.known = attempts.known
            if isinstance(step, Deliver) and reply is not None:
                yield from self._ended(reply, step.verdict)
                return reply.response
            if isinstance(step, Stop):
                yield from self._troubled(step)
                raise self._error(step, reply) from (lost.error if lost else None)
            if isinstance(step, Wait):
                yield step

    @staticmethod
    def _judged(attempts: Attempts, outcome: Reply | Lost) -> Deliver | Wait | Stop:
        if isinstance(outcome, Reply):
            return attempts.answered(outcome.answer, time.monotonic())
        if hopeless(outcome.error):
            raise outcome.error
        return attempts.failed(outcome.sent, time.monotonic())

    def _kept(self) -> Any:
        """The answer that the journal has, if the operation is done."""
        journal = self.terms.journal
        if self.entry is None or not self.entry.done or not self.first or journal is None:
            return None
        kept, rebuilt = self.entry.answer, self.terms.rebuilt
        if kept is not None and kept.body is not None and rebuilt is not None:
            return rebuilt(kept)
        if journal.age(self.entry) >= journal.keep_for:
            raise too_old(self.entry)
        return None

    def _age(self) -> float | None:
        """How old the operation is: by the journal, or by its key."""
        if self.entry is not None and self.terms.journal is not None:
            return self.terms.journal.age(self.entry)
        made = None if self.ours else made_at(self.key)
        return None if made is None else max(0.0, time.time() - made / 1000)

    def _ended(self, reply: Reply, verdict: Verdict) -> Generator[Disk, None, None]:
        journal, answer = self.terms.journal, reply.answer
        if journal is None or (answer.status in KEEP_METHOD and "location" in answer.headers):
            return
        if verdict in _NO_END:
            words = f"{_NO_END[verdict]}, with {answer.status}"
            yield Disk(partial(journal.kept, journal.troubled, self.key, words))
            return
        kept = Kept(answer.status, tuple(answer.headers.items()), answer.body)
        yield Disk(partial(journal.kept, journal.done, self.key, kept))

    def _troubled(self, stop: Stop) -> Generator[Disk, None, None]:
        journal = self.terms.journal
        if journal is not None:
            words = f"{stop.reason} after {stop.attempts} attempts"
            yield Disk(partial(journal.kept, journal.troubled, self.key, words))

    def _error(self, stop: Stop, reply: Reply | None) -> GaveUp:
        kind = GaveUp
        if stop.known is Known.MAYBE_DONE:
            kind = OutcomeUnknown
        elif stop.known is Known.NOTHING_SENT and self.ours:
            kind = NothingSent
        made = also(kind, self.terms.foreign)
        operation = operation_of(reply.answer) if reply else ""
        response = reply.response if reply else None
        return made(key=self.key, attempts=stop.attempts, reason=stop.reason, operation=operation, response=response)


def _given(carriage: Carriage, request: Request) -> str:
    """The key that the caller has put into the request."""
    if carriage.member:
        return carriage.key_in(request.body) if request.method.upper() in carriage.methods else ""
    return carriage.read(_header(request.headers, carriage.header))


def _header(headers: tuple[tuple[str, str], ...], name: str) -> str:
    wanted = name.lower()
    return next((value for field, value in headers if field.lower() == wanted), "")


def _one_request_only(entry: Entry | None, request: Request) -> None:
    """A key that is sent with two different requests is refused by the server: say so before anything leaves."""
    known = entry.request if entry else None
    if known is not None and (known.method, _place(known.url)) != (request.method, _place(request.url)):
        raise IntentReused(
            f"this intent has sent {known.method} {_place(known.url)}, and cannot send {request.method} "
            f"{_place(request.url)} too: open another intent for it, such as intent('checkout/receipt', order_id)"
        )


def _place(url: str) -> str:
    return urlsplit(url).path


def _carrying(carriage: Carriage, request: Request, key: str, entry: Entry | None) -> Request:
    """The same request with the key in its place."""
    if carriage.member:
        return Request(request.method, request.url, request.headers, carriage.key_into(request.body, key))
    names = (
        {carriage.header.lower(), FIRST_SENT.lower()} if entry and carriage.first_sent else {carriage.header.lower()}
    )
    headers = [(name, value) for name, value in request.headers if name.lower() not in names]
    headers.append((carriage.header, carriage.written(key)))
    if entry is not None and carriage.first_sent:
        headers.append((FIRST_SENT, formatdate(entry.made_at, usegmt=True)))
    return Request(request.method, request.url, tuple(headers), request.body)


def hopeless(error: BaseException | None) -> bool:
    """No retry makes a wrong certificate right, and it may be somebody else's server."""
    seen = 0
    while error is not None and seen < 10:  # noqa: PLR2004 - chains of causes are short
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        inner = getattr(error, "reason", None)
        error = error.__cause__ or error.__context__ or (inner if isinstance(inner, BaseException) else None)
        seen += 1
    return False


def lower(headers: Mapping[str, str] | list[tuple[str, str]]) -> dict[str, str]:
    """Headers with their names in lower case."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return {name.lower(): value for name, value in pairs}


def whole(body: Any) -> bytes:
    """The body in memory: a stream could be sent only once."""
    if body is None or isinstance(body, bytes):
        return body or b""
    if isinstance(body, str):
        return body.encode()
    if hasattr(body, "read"):
        return whole(body.read())
    return b"".join(body)


def streams(headers: Mapping[str, str]) -> bool:
    """An endless answer: it is handed on as it comes."""
    return headers.get("content-type", "").startswith("text/event-stream")


def unframed(status: int, headers: Mapping[str, str], body: bytes) -> bool:
    """An answer that is cut inside its headers looks to http.client like an empty one: nothing says where it ends.

    One that ends with its connection may be cut as well; where it is JSON, that can be seen.
    """
    if status in {204, 205, 304} or streams(headers):
        return False
    if headers.get("content-length", "").isdigit() or headers.get("transfer-encoding", "").lower().endswith("chunked"):
        return False
    return not body or ("json" in headers.get("content-type", "") and not _is_json(body))


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def within(asked: float | None, left: float | None) -> float | None:
    """A time-out that does not outlast the time that is left."""
    known = [seconds for seconds in (asked, left) if seconds is not None]
    return min(known, default=None)


def run(
    guard: Guard, send: Callable[[float | None], Reply | Lost], sleep: Callable[[float], object] = time.sleep
) -> Any:
    """Drive a flow under threads. `send` gets the seconds that are left for it."""
    flow = guard.flow()
    given: Reply | Lost | None = None
    try:
        while True:
            step = flow.send(given)
            given = None
            if isinstance(step, Send):
                given = send(None if step.left is None else min(step.left, _LONGEST))
            elif isinstance(step, Wait):
                sleep(step.seconds)
            else:
                step.write()
    except StopIteration as end:
        return end.value
