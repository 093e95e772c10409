"""Everything OnceKey raises.

    OnceKeyError
    ├── ConfigurationError      the set-up is wrong; the message says what to write instead
    │   ├── MissingExtra        a package that this choice needs is not installed
    │   ├── SchemaMissing       the store's tables are absent or of another version
    │   └── UnsafeStore         the server's settings could lose or evict records
    ├── RequestRefused          the request breaks a rule; nothing was run
    │   ├── BadKey              the idempotency key is missing or malformed
    │   ├── BodyTooLarge        the body is over the cap
    │   └── BodyIncomplete      the upload ended before the body did
    ├── StoreError              the store could not answer
    │   ├── StoreUnavailable    unreachable, refused, out of time or out of memory
    │   ├── RecordUnreadable    a record of an unknown version, or damaged
    │   └── RecordForged        a record that does not belong to its key, or fails authentication
    ├── BadMessage              no retry can help this message: it is parked
    ├── RedeliverLater          the message cannot be handled now: leave it unacknowledged
    ├── BrokerUnavailable       the broker could not be reached, or did not confirm: it is tried again
    ├── MessageRefused          the broker does not take this message
    ├── NotGranted              the key is not free: `reason` says why, `after` when to come again
    ├── TransactionEnded        the code in a transaction has committed or rolled back by itself
    ├── LeaseLost               the lease ended, or another owner holds the record
    ├── JournalFull             the calls and results of one operation are more than its record keeps
    ├── StepChanged             a step was kept with other arguments than it is asked for now
    └── outcome signals, raised by a handler to say what it knows
        ├── Declined            whoever was asked said no, for good: this is the answer
        ├── NotExecuted         no effect happened: the operation may be run again
        └── OutcomeUnknown      nobody can know yet: keep the key shut and find out

Expected answers (in flight, mismatch, replay) are values, not exceptions: see core.decision.
Every class carries `status`, a hint for HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class OnceKeyError(Exception):
    """The root of all OnceKey errors."""

    status = 500


class ConfigurationError(OnceKeyError):
    """The set-up is wrong; the message says what to write instead."""


class MissingExtra(ConfigurationError):
    """A package that this choice needs is not installed."""

    def __init__(self, what: str, extra: str, otherwise: str = "") -> None:
        way_out = f", or {otherwise}" if otherwise else ""
        super().__init__(f"{what} needs a package that is not installed: pip install 'oncekey[{extra}]'{way_out}")
        self.extra = extra


class SchemaMissing(ConfigurationError):
    """The store's tables are absent or of another version."""


class UnsafeStore(ConfigurationError):
    """The server's settings could lose or evict records."""


class RequestRefused(OnceKeyError):
    """The request breaks a rule; nothing was run."""

    status = 400


class BadKey(RequestRefused):
    """The idempotency key is missing or malformed.

    `rule` names the broken rule (a stable word), `send` says what to send instead.
    """

    def __init__(self, rule: str, detail: str, send: str) -> None:
        super().__init__(f"{detail} {send}")
        self.rule = rule
        self.detail = detail
        self.send = send


class BodyTooLarge(RequestRefused):
    """The body is over the cap."""

    status = 413


class BodyIncomplete(RequestRefused):
    """The upload ended before the body did."""


class StoreError(OnceKeyError):
    """The store could not answer."""

    status = 503


class StoreUnavailable(StoreError):
    """Unreachable, refused, out of time or out of memory."""


class RecordUnreadable(StoreError):
    """A record of an unknown version, or damaged. It is never executed over."""


class RecordForged(StoreError):
    """A record that does not belong to its key, or fails authentication. It is never executed over."""


class BadMessage(OnceKeyError):
    """No retry can help this message: it is parked. A handler may raise it too."""

    status = 400


class RedeliverLater(OnceKeyError):
    """The message cannot be handled now: leave it unacknowledged, and it will come again."""

    status = 503

    def __init__(self, reason: str, after: float) -> None:
        super().__init__(reason)
        self.after = after


class BrokerUnavailable(OnceKeyError):
    """The broker could not be reached, or confirmed nothing: what was sent may have arrived, and is sent again."""

    status = 503

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class MessageRefused(OnceKeyError):
    """The broker does not take this message. It is tried again later, unless it can never be taken (`final`)."""

    status = 502

    def __init__(self, reason: str, after: float | None = None, *, final: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.final = final


class NotGranted(OnceKeyError):
    """The key is not free, and nothing was run.

    `reason` is the name of the problem that HTTP clients are told (docs/problems): in-progress, retry-later,
    outcome-unknown, key-reused, key-expired, attempts-exhausted, request-too-old. `after` is in seconds, or None where
    waiting does not help.
    """

    status = 409

    def __init__(self, reason: str, message: str, status: int = 409, after: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.after = after


class TransactionEnded(OnceKeyError):
    """The code in a transaction has committed or rolled back by itself; what it has left undone was rolled back."""


class LeaseLost(OnceKeyError):
    """The lease ended, or another owner holds the record."""

    status = 409


class JournalFull(OnceKeyError):
    """The calls and results of one operation are more than its record keeps."""


class StepChanged(OnceKeyError):
    """A step was kept with other arguments than it is asked for now. Nothing of it was run."""


class Declined(OnceKeyError):
    """Raise it when whoever was asked has said no, for good: `answer` is kept and replayed as the operation's outcome.

    Bytes and texts go out as they are, anything else as JSON; `status` is 400 to 499, and `headers` go along.
    """

    status = 422

    def __init__(self, answer: Any, status: int = 422, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"declined with status {status}")
        if not 400 <= status <= 499:  # noqa: PLR2004 - what HTTP calls the client's errors
            raise ValueError(f"Declined(status={status}) is no refusal: write 400 to 499, such as status=402")
        self.answer = answer
        self.status = status
        self.headers = dict(headers or {})


class NotExecuted(OnceKeyError):
    """Raise it when no effect happened: the operation may be run again under the same key."""

    status = 503


class OutcomeUnknown(OnceKeyError):
    """Raise it when nobody can know yet whether the effect happened: the key stays shut until it is reconciled."""

    status = 500


# What a handler raises to say what it knows: none of these is a fault of its own.
SIGNALS = (Declined, NotExecuted, OutcomeUnknown)
