"""What the client raises. Each error says what is known, and what the caller may do.

    ClientError
    ├── Rejected              a definite refusal: correct the request; it is a new operation then, with a new key
    │   └── Mismatch          the key belongs to another request: a defect of the caller, nothing was done
    ├── GaveUp                no attempt was taken on; nothing is known to have happened
    │   ├── NothingSent       no attempt left this machine (also a NotExecuted)
    │   └── OutcomeUnknown    it may have happened: ask again later under the same key, never under a new one
    ├── IntentOver            it was done, and nobody keeps its answer: neither this key again nor a new one
    ├── QueueFull             the journal holds as much as it may
    ├── JournalUnusable       its file cannot be read or written, so nothing was sent (also a ConfigurationError)
    └── IntentReused          one intent, two requests

In a handler that is itself guarded, NothingSent and OutcomeUnknown are the signals of the same meaning: the key of the
incoming request is freed by the one and kept shut by the other.
"""

from __future__ import annotations

from typing import Any

from oncekey import errors

_ADVICE = {
    "attempts": "all attempts are used up",
    "time": "there is no time left for another attempt",
    "budget": "the retry budget of this program is used up",
    "age": "it is older than the server keeps answers, so sending it again could run it anew: it is unresolved",
    "wait": "the server asks to wait longer than `obey_for`",
    "denied": "the server does not let this caller in any more: bring other credentials",
    "told": "the server says that asking again does not help",
}


class ClientError(errors.OnceKeyError):
    """The root of what the client raises."""


class Rejected(ClientError):
    """The server has refused, for good. `response` is its answer, of the HTTP library's type."""

    def __init__(self, message: str, *, key: str, status: int, response: Any = None) -> None:
        super().__init__(message)
        self.key = key
        self.status_code = status
        self.response = response


class Mismatch(Rejected):
    """The key was used for another request. Nothing was done for this one; find out why two requests share a key."""


class GaveUp(ClientError):
    """No attempt was taken on. `attempts` were made; the same key may be used again later."""

    status = 503
    state = "the server took on none of them"
    next_step = "Send it again later, with the same key."

    def __init__(self, *, key: str, attempts: int, reason: str, operation: str = "", response: Any = None) -> None:
        named = f" (the server calls it {operation})" if operation else ""
        times = "one attempt" if attempts == 1 else f"{attempts} attempts"
        super().__init__(
            f"gave up on the operation with the key {key!r}{named} after {times}: {_ADVICE.get(reason, reason)}; "
            f"{self.state}. {self.next_step}"
        )
        self.key = key
        self.attempts = attempts
        self.reason = reason
        self.operation = operation
        self.response = response


class NothingSent(GaveUp, errors.NotExecuted):
    """No attempt left this machine: it has certainly not happened."""

    state = "no connection was made, so it has not happened"


class OutcomeUnknown(GaveUp, errors.OutcomeUnknown):
    """It may have happened. Keep the key; `operation` is what to ask the server's people for."""

    state = "it may have happened"
    next_step = "Keep the key and ask again later with it; a new key could do it twice."


class QueueFull(ClientError):
    """The journal holds as many operations as it may: nothing was added."""


class JournalUnusable(ClientError, errors.ConfigurationError):
    """The journal's file cannot be read or written. What cannot be remembered is not sent."""


class IntentReused(ClientError):
    """One intent was used for two different requests: each needs an intent of its own."""


class IntentOver(ClientError):
    """It was done, and the server no longer keeps its answer. `answer` is what the journal remembers of it, if any."""

    def __init__(self, message: str, *, key: str, answer: Any = None) -> None:
        super().__init__(message)
        self.key = key
        self.answer = answer


_KINDS: dict[tuple[type[GaveUp], type[Exception]], type[GaveUp]] = {}


def also(kind: type[GaveUp], foreign: type[Exception]) -> type[GaveUp]:
    """This error, which the HTTP library's own `except` clauses catch as well."""
    if foreign is Exception:
        return kind
    members = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    return _KINDS.setdefault((kind, foreign), type(kind.__name__, (kind, foreign), members))
