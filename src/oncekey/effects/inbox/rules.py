"""What becomes of a message: the verdicts, and when one is given up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from oncekey.errors import BadMessage, ConfigurationError, NotExecuted, RedeliverLater

# How long a message waits whose twin is being handled elsewhere at this moment.
BUSY_FOR = 1.0
# A reason is for people; nobody reads more.
LONGEST_REASON = 500

# Serialization failures, deadlocks, locks not granted; and the classes of lost connections and of servers in trouble.
_TRANSIENT = frozenset({"40001", "40P01", "55P03"})
_TRANSIENT_CLASSES = frozenset({"08", "53", "57"})
_SQLITE_BUSY = frozenset({5, 6})


class Handled(NamedTuple):
    """The message needs nothing more: acknowledge it. `value` is what the handler returned, if it ran just now."""

    how: Literal["done", "duplicate", "parked"]
    value: Any = None
    reason: str = ""


class Later(NamedTuple):
    """Not now: let it come again, not sooner than `after` seconds. `error` is what the handler raised."""

    after: float
    reason: str
    error: BaseException | None = None


class GivenUp(NamedTuple):
    """It will not be run, and we have no place to keep it: let the broker put it with its dead letters."""

    reason: str


Verdict = Handled | Later | GivenUp


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a message is tried, and how long it waits in between: twice as long each time, up to a limit."""

    attempts: int = 5
    first_for: float = 1.0
    most_for: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what would never try, or never give up."""
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigurationError(f"attempts={self.attempts!r} makes no sense: write a whole number of 1 or more")
        if not 0 < self.first_for <= self.most_for:
            raise ConfigurationError(
                f"a message that waits {self.first_for!r} s at first and {self.most_for!r} s at most makes no sense: "
                f"write two numbers above 0, the smaller one first"
            )

    def used_up(self, attempts: int, error: BaseException | None = None) -> bool:
        """Whether this was the last attempt."""
        return isinstance(error, BadMessage) or attempts >= self.attempts

    def wait_for(self, attempts: int, error: BaseException | None = None) -> float:
        """How long the message waits after so many attempts."""
        if isinstance(error, RedeliverLater):
            return error.after
        return float(min(self.most_for, self.first_for * 2 ** min(attempts - 1, 30)))


def counts(error: BaseException) -> bool:
    """Whether an attempt that ended like this is one of those a message has: not if the handler only asked for time."""
    return not isinstance(error, RedeliverLater | NotExecuted)


def transient(error: BaseException) -> bool:
    """Whether it was the database that failed, and not the message: such an attempt is not held against it."""
    for cause in (error, getattr(error, "orig", None), error.__cause__):
        state = getattr(cause, "sqlstate", None)
        if state is not None and (state in _TRANSIENT or state[:2] in _TRANSIENT_CLASSES):
            return True
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE_BUSY:
            return True
    return False


def reason_of(error: BaseException) -> str:
    """What an operator reads about a failure."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.replace("\x00", "")[:LONGEST_REASON]
