"""What happens to a message, as generators: the same under threads and under asyncio (drivers.py).

A flow yields Together(block) and is sent what the block returned, or is thrown what ended its transaction. A block runs
in one transaction: it yields Ask and is sent rows, or Call and is sent what the handler returned.

The rule behind all of it: the name of the message and the handler's effect are written in one transaction. Failures are
counted in another, because the first was rolled back.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from oncekey.effects.inbox.message import Named, Place, keep, placed
from oncekey.effects.inbox.rules import (
    BUSY_FOR,
    Handled,
    Later,
    Patience,
    Verdict,
    counts,
    reason_of,
    transient,
)
from oncekey.engine.events import log
from oncekey.errors import BadMessage, RedeliverLater

T = TypeVar("T")

BUSY: Final = Later(BUSY_FOR, "another consumer is handling it at this moment")
DUPLICATE: Final = Handled("duplicate")
_STARTED: Final = "it began and did not end: its process may have died"


class Ask(NamedTuple):
    """Run a statement by its name; what comes back is a list of rows."""

    name: str
    values: dict[str, Any]

    @classmethod
    def of(cls, name: str, /, **values: Any) -> Ask:
        """Name it and give its values."""
        return cls(name, values)


class Call(NamedTuple):
    """Run the handler on a message."""

    message: Any


class Build(NamedTuple):
    """Make the tables, where they are not there."""


Block = Generator[Ask | Call | Build, Any, T]


class Together(NamedTuple):
    """Run a block in one transaction."""

    block: Block[Any]


Flow = Generator[Together, Any, T]


class Item(NamedTuple):
    """One message and its name."""

    name: Named
    message: Any
    place: Place | None = None
    late: bool = False

    @property
    def redelivered(self) -> bool:
        """Whether the message may have come before."""
        return bool(getattr(self.message, "redelivered", False))


class Mode(Protocol):
    """How a message is known again: by its id, or by its place in a partition."""

    def run(self, items: Sequence[Item]) -> Block[list[Verdict]]: ...
    def leave(self, item: Item) -> Block[None]: ...


class Terms(NamedTuple):
    """What the flows need to know of an inbox."""

    patience: Patience
    mode: Mode
    keep_for: int | None


def lock_of(id_: bytes) -> int:
    """The number under which a name is locked: two names with one number only wait for each other."""
    return int.from_bytes(id_[:8], "big", signed=True)


class ById:
    """Every message has its name in the table."""

    def __init__(self, keep_for: int | None) -> None:
        self._keep_for = keep_for

    def run(self, items: Sequence[Item]) -> Block[list[Verdict]]:
        """Handle each that is new."""
        verdicts: list[Verdict] = []
        for item in items:
            verdict = yield from (self._late(item) if item.late else self._run(item))
            verdicts.append(verdict)
        return verdicts

    def _run(self, item: Item) -> Block[Verdict]:
        id_ = item.name.id
        rows = yield Ask.of("claim", id=id_, lock=lock_of(id_), keep_for=self._keep_for)
        if not rows:
            return DUPLICATE
        if not rows[0][0]:
            return BUSY
        return Handled("done", (yield Call(item.message)))

    def _late(self, item: Item) -> Block[Verdict]:
        if (yield Ask.of("known", id=item.name.id)):
            return DUPLICATE
        raise BadMessage("it is older than messages are remembered: it may have been handled and forgotten since")

    def leave(self, item: Item) -> Block[None]:
        """Nothing stands in the way of the next message."""
        yield from ()


class ByPlace:
    """Ordered mode: of each partition only the last place is known, and messages come in order."""

    def run(self, items: Sequence[Item]) -> Block[list[Verdict]]:
        """Handle those behind the place that was reached, then move it. All items are of one partition, in order."""
        values = self._values(items[0])
        lock = placed(values["consumer"], values["source"], (values["partition"], 0)).id
        ((free, reached),) = yield Ask.of("look", lock=lock_of(lock), **values)
        if not free:
            return [BUSY] * len(items)
        verdicts: list[Verdict] = []
        for item in items:
            if reached is None or _position(item) > reached:
                verdicts.append(Handled("done", (yield Call(item.message))))
                reached = _position(item)
            else:
                verdicts.append(DUPLICATE)
        if any(verdict is not DUPLICATE for verdict in verdicts):
            yield from self._advance(items[-1])
        return verdicts

    def _advance(self, item: Item) -> Block[None]:
        moved = yield Ask.of("advance", position=_position(item), **self._values(item))
        if not moved:
            # Somebody else was there after we looked: what we did is rolled back with this.
            raise RedeliverLater("another consumer has moved on in this partition", BUSY_FOR)

    def leave(self, item: Item) -> Block[None]:
        """Step over a message that is given up. One without a place stands in nobody's way."""
        if item.place is None:
            return
        yield Ask.of("advance", position=_position(item), **self._values(item))

    def _values(self, item: Item) -> dict[str, Any]:
        partition, _ = _place(item)
        return {"consumer": item.name.consumer, "source": item.name.source, "partition": partition}


def _place(item: Item) -> Place:
    if item.place is None:
        raise BadMessage("ordered mode needs the message's place: its partition and its offset")
    return item.place


def _position(item: Item) -> int:
    return _place(item)[1]


# ---- flows -------------------------------------------------------------------------------------------------------


def deliver(terms: Terms, item: Item) -> Flow[Verdict]:
    """Handle one message, or find out why not. What goes wrong in the handler becomes a verdict here."""
    counted = 0
    try:
        if item.redelivered:
            met = yield Together(_begin(terms, item))
            if not isinstance(met, int):
                return met  # type: ignore[no-any-return]
            counted = met
        return (yield Together(_run(terms, item, counted)))  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is the message's story, not the consumer's end
        return (yield from _failed(terms, item, error, counted))


def deliver_many(terms: Terms, items: Sequence[Item]) -> Flow[list[Verdict]]:
    """Handle several in one transaction; if that fails, one by one. Of one partition, nothing after one that waits."""
    if len(items) > 1 and not any(item.redelivered or item.late for item in items):
        try:
            return (yield Together(terms.mode.run(items)))  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001 - as in deliver; the culprit is found below
            log.info("a batch of %d messages failed and is tried one by one: %s", len(items), reason_of(error))
    verdicts: list[Verdict] = []
    for item in items:
        if verdicts and item.place and isinstance(verdicts[-1], Later):
            verdicts.append(verdicts[-1]._replace(error=None))
        else:
            verdicts.append((yield from deliver(terms, item)))
    return verdicts


def refuse(terms: Terms, item: Item, error: Exception) -> Flow[Verdict]:
    """Park a message that cannot even be named, or made again."""
    return (yield from _failed(terms, item, error, 0))


def run_again(terms: Terms, item: Item, attempts: int) -> Flow[Verdict]:
    """Handle a message that was parked and taken out again, whatever its age. If it fails it stays parked."""
    mode = ById(terms.keep_for)
    try:
        return (yield Together(_run(terms._replace(mode=mode), item, attempts)))  # type: ignore[no-any-return]
    except Exception as error:  # noqa: BLE001 - as in deliver
        return (yield from _failed(terms._replace(mode=mode), item, error, attempts))


def _begin(terms: Terms, item: Item) -> Block[int | Verdict]:
    """Count the attempt before it begins; or say that there is nothing to begin."""
    partition, position = item.place or (None, None)
    values = item.name._asdict() | {"partition": partition, "position": position, "reason": _STARTED}
    rows = yield Ask.of("begin", lock=lock_of(item.name.id), **values)
    if rows and not rows[0][0]:
        return BUSY
    if not rows or rows[0][1] is None:
        return DUPLICATE
    _, attempts, parked_at = rows[0]
    if parked_at is not None:
        yield from terms.mode.leave(item)
        return Handled("parked", reason="it was parked before")
    if attempts <= terms.patience.attempts:
        return int(attempts)
    return (yield from _park(terms, item, f"{attempts - 1} attempts began and none of them ended"))


def _run(terms: Terms, item: Item, counted: int) -> Block[Verdict]:
    (verdict,) = yield from terms.mode.run([item])
    if counted and isinstance(verdict, Handled):
        yield Ask.of("recovered", id=item.name.id)
    return verdict


def _failed(terms: Terms, item: Item, error: Exception, counted: int) -> Flow[Verdict]:
    """Count a failure, in a transaction of its own, and decide what becomes of the message."""
    reason = reason_of(error)
    if transient(error) or not counts(error):
        if counted:
            yield from _uncounted(item)
        return Later(terms.patience.wait_for(1, error), reason, error)
    try:
        return (yield Together(_note(terms, item, error, counted)))  # type: ignore[no-any-return]
    except Exception as trouble:  # noqa: BLE001 - the database is away: the broker still has the message
        log.warning("a failed attempt could not be counted: %s", reason_of(trouble))
        return Later(terms.patience.wait_for(max(1, counted), error), reason, error)


def _uncounted(item: Item) -> Flow[None]:
    """Take back what `_begin` has counted: the attempt ended in good order, and is not held against the message."""
    try:
        yield Together(_take_back(item))
    except Exception as trouble:  # noqa: BLE001 - the database is away: one attempt less, and it comes again
        log.warning("an attempt that counts for nothing could not be taken back: %s", reason_of(trouble))


def _take_back(item: Item) -> Block[None]:
    yield Ask.of("take_back", id=item.name.id)


def _note(terms: Terms, item: Item, error: Exception, counted: int) -> Block[Verdict]:
    reason = reason_of(error)
    values = item.name._asdict() | {"count": 0 if counted else 1, "reason": reason}
    ((attempts, parked_at),) = yield Ask.of("failed", **values)
    if parked_at is not None:
        yield from terms.mode.leave(item)
        return Handled("parked", reason=reason)
    if not terms.patience.used_up(attempts, error):
        return Later(terms.patience.wait_for(attempts, error), reason, error)
    return (yield from _park(terms, item, reason))


def _park(terms: Terms, item: Item, reason: str) -> Block[Verdict]:
    yield Ask.of("park", id=item.name.id, **keep(item.message)._asdict())
    yield from terms.mode.leave(item)
    log.error("message %s of %s was parked: %s", item.name.message_id, item.name.source, reason)
    return Handled("parked", reason=reason)
