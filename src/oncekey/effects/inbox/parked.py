"""What operators do with an inbox, as blocks: list, requeue, discard, purge, count, migrate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from oncekey.effects.inbox.flows import Ask, Block, Build, Flow, Item, refuse, run_again
from oncekey.effects.inbox.message import Kept, Named, kept_again, named
from oncekey.effects.inbox.rules import Verdict
from oncekey.errors import BadMessage

if TYPE_CHECKING:
    from oncekey.effects.inbox.terms import Rules

# How long failures of a message that never came again are remembered.
TROUBLE_FOR = 30 * 86_400_000


class Parked(NamedTuple):
    """A message that was parked, as it stands in the table. Times are milliseconds since the epoch."""

    id: bytes
    consumer: str
    source: str
    message_id: str
    attempts: int
    first_at: int
    last_at: int
    parked_at: int
    requeued_at: int | None
    reason: str
    form: str
    headers: bytes
    body: bytes

    @property
    def name(self) -> Named:
        """The message's name."""
        return Named(self.id, self.consumer, self.source, self.message_id)


class Page(NamedTuple):
    """Some of what is parked, oldest first; `after` asks for what follows, None ends it."""

    parked: list[Parked]
    after: tuple[int, bytes] | None


class Tidied(NamedTuple):
    """What one small batch of a purge forgot, and whether another one is worth it."""

    forgotten: int
    more: bool


class Counts(NamedTuple):
    """How much an inbox holds."""

    remembered: int
    places: int
    failing: int
    parked: int


def listing(consumer: str | None, source: str | None, after: tuple[int, bytes] | None, limit: int) -> Block[Page]:
    """A page of what is parked."""
    after_at, after_id = after or (-1, b"")
    rows = yield Ask(
        "parked",
        {"consumer": consumer, "source": source, "after_at": after_at, "after_id": after_id, "most": limit + 1},
    )
    found = [_read(row) for row in rows[:limit]]
    return Page(found, (found[-1].parked_at, found[-1].id) if len(rows) > limit else None)


def one(id_: bytes) -> Block[Parked | None]:
    """One that is parked."""
    rows = yield Ask("one", {"id": id_})
    return _read(rows[0]) if rows else None


def change(what: Literal["requeue", "discard"], id_: bytes) -> Block[bool]:
    """Let a parked message be run again, or forget it. False: it is not parked."""
    return bool((yield Ask(what, {"id": id_})))


def take(consumer: str, source: str) -> Block[Parked | None]:
    """Take one that is to be run again. From here on it is parked as before, until it has been handled."""
    rows = yield Ask("take", {"consumer": consumer, "source": source})
    return _read(rows[0]) if rows else None


def run(rules: Rules, kept: Parked) -> Flow[Verdict]:
    """Run it, once."""
    try:
        message = kept_again(Kept(kept.form, kept.headers, kept.body), kept.source, kept.message_id)
    except BadMessage as error:
        return (yield from refuse(rules.terms, Item(kept.name, None), error))
    # By its own name, also in ordered mode: its place has long been passed.
    return (yield from run_again(rules.terms, Item(kept.name, message), kept.attempts))


def purge(limit: int) -> Block[Tidied]:
    """Forget a small batch of what is no longer remembered."""
    handled = yield Ask("purge_handled", {"most": limit})
    trouble = yield Ask("purge_trouble", {"most": limit, "keep_for": TROUBLE_FOR})
    return Tidied(len(handled) + len(trouble), max(len(handled), len(trouble)) == limit)


def count() -> Block[Counts]:
    """Count."""
    (row,) = yield Ask("count", {})
    return Counts(*row)


def migrate() -> Block[None]:
    """Make the tables, where they are not there."""
    yield Build()


def handled(consumer: str, source: str, message_id: str) -> Block[bool]:
    """Whether a message was handled, and is remembered."""
    return bool((yield Ask("known", {"id": named(consumer, source, message_id).id})))


def place(consumer: str, source: str, partition: int) -> Block[int | None]:
    """Ordered mode: the place that a partition was handled up to."""
    rows = yield Ask("place", {"consumer": consumer, "source": source, "partition": partition})
    return rows[0][0] if rows else None


def forget_places(consumer: str, source: str) -> Block[int]:
    """Ordered mode: begin anew, because the topic was made anew and its offsets began again."""
    return len((yield Ask("forget_place", {"consumer": consumer, "source": source})))


def _read(row: tuple[Any, ...]) -> Parked:
    return Parked._make((bytes(row[0]), *row[1:11], bytes(row[11]), bytes(row[12])))
