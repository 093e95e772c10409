"""What is asked of the database, block by block. A block runs in one transaction: it yields Ask and is sent rows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from oncekey.effects.link import Flow as Talk
from oncekey.effects.link import Link
from oncekey.effects.outbox.message import Outgoing
from oncekey.effects.outbox.statements import statements

T = TypeVar("T")
LONGEST_REASON: Final = 500


class Ask(NamedTuple):
    """Run a statement by its name; what comes back is a list of rows."""

    name: str
    values: dict[str, Any]

    @classmethod
    def of(cls, name: str, /, **values: Any) -> Ask:
        """Name it and give its values."""
        return cls(name, values)


class Build(NamedTuple):
    """Make the table, where it is not there."""


Block = Generator[Ask | Build, Any, T]


class Failure(NamedTuple):
    """What became of a message that the broker did not take: tried again in `wait_for` milliseconds, or given up."""

    message: Outgoing
    reason: str
    wait_for: int
    park: bool


class Letter(NamedTuple):
    """A dead letter: the message, since when it is one (in milliseconds since the epoch), and why."""

    message: Outgoing
    parked_at: int
    reason: str


class Letters(NamedTuple):
    """Some of the dead letters, oldest first; `after` asks for what follows, None ends it."""

    letters: list[Letter]
    after: int | None


class Counts(NamedTuple):
    """How much an outbox holds; `oldest_for` is how many milliseconds the oldest unsent message has waited."""

    pending: int
    failing: int
    sent: int
    parked: int
    oldest_for: int | None


# ---- the relay's -------------------------------------------------------------------------------------------------


def claim(lease: str, lease_for: int, most: int) -> Block[list[Outgoing]]:
    """Take the oldest messages that are due."""
    yield Ask.of("take_turn")
    rows = yield Ask.of("claim", lease=lease, lease_for=lease_for, most=most)
    return sorted(map(_read, rows), key=lambda message: message.position)


def settle(
    lease: str, sent: Sequence[Outgoing], failures: Sequence[Failure], untried: Sequence[Outgoing]
) -> Block[None]:
    """Write down what became of a batch, by the exact ids."""
    if sent:
        yield Ask.of("sent", ids=_ids(sent))
    for failure in failures:
        yield Ask.of(
            "failed",
            id=failure.message.id,
            lease=lease,
            reason=failure.reason[:LONGEST_REASON],
            wait_for=failure.wait_for,
            park=int(failure.park),
        )
    if untried:
        yield Ask.of("released", ids=_ids(untried), lease=lease)


def look() -> Block[int | None]:
    """In how many milliseconds something is due; None where nothing is to be sent."""
    rows = yield Ask.of("look")
    return rows[0][0]  # type: ignore[no-any-return]


def purge(keep_for: int, most: int) -> Block[int]:
    """Forget a small batch of what was sent long ago."""
    return len((yield Ask.of("purge", keep_for=keep_for, most=most)))


# ---- the operator's ----------------------------------------------------------------------------------------------


def migrate() -> Block[None]:
    """Make the table, where it is not there."""
    yield Build()


def check() -> Block[None]:
    """Touch the table."""
    yield Ask.of("there")


def count() -> Block[Counts]:
    """Count."""
    (row,) = yield Ask.of("count")
    return Counts(*row)


def letters(after: int | None, limit: int) -> Block[Letters]:
    """A page of the dead letters."""
    rows = yield Ask.of("parked", after=after or 0, most=limit + 1)
    found = [Letter(_read(row), row[9], row[10]) for row in rows[:limit]]
    return Letters(found, found[-1].message.position if len(rows) > limit else None)


def requeue(id_: str | None) -> Block[int]:
    """Let one dead letter be sent again, or all."""
    rows = yield Ask.of("requeue", every=int(id_ is None), id=id_ or NOBODY)
    if rows:
        yield Ask.of("wake")
    return len(rows)


def discard(id_: str) -> Block[bool]:
    """Forget a dead letter."""
    return bool((yield Ask.of("discard", id=id_)))


NOBODY: Final = "00000000-0000-0000-0000-000000000000"


def _ids(messages: Sequence[Outgoing]) -> str:
    return orjson.dumps([message.id for message in messages]).decode()


def _read(row: tuple[Any, ...]) -> Outgoing:
    id_, topic, body, headers, key, type_, staged_at, attempts, position = row[:9]
    known = orjson.loads(headers) if headers else {}
    return Outgoing(id_, topic, bytes(body), known, key, type_, staged_at / 1000, attempts, position)


# ---- carried out -------------------------------------------------------------------------------------------------


def talk(block: Block[T], link: Link, table: str) -> Talk[T]:
    """Answer what a block asks, in the transaction that is open."""
    known = statements(link.database, table)
    answer: Any = None
    try:
        while True:
            step = block.send(answer)
            if isinstance(step, Build):
                for statement in known.schema:
                    yield from link.execute(*statement)
            else:
                answer = (yield from link.execute(*known.ask(step.name, step.values))).rows
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def carry_out(make: Callable[[], Block[T]], link: Link, table: str) -> Talk[T]:
    """Run a block in a transaction of its own."""
    yield from link.begin()
    try:
        value = yield from talk(make(), link, table)
    except BaseException:
        # What cannot be rolled back is a lost connection, and the server has done it.
        with suppress(Exception):
            yield from link.rollback()
        raise
    yield from link.commit()
    return value
