"""What every kind of connection can do for us, written once for threads and asyncio.

A Link's methods are generators: they yield whatever their library returns, a value under threads and an awaitable under
asyncio, and are sent the value. `drive` and `drive_async` run them. So there is one text for both colours.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Flow = Generator[Any, Any, T]
Database = Literal["postgresql", "sqlite"]
PLACE = re.compile(r"\$(\d+)")


class Answer(NamedTuple):
    """What a statement gave: its rows, and how many it touched."""

    rows: list[tuple[Any, ...]]
    changed: int


class Link(Protocol):
    """A caller's connection. `begin` joins a transaction that is open already, by a savepoint."""

    database: Database
    awaited: bool
    joined: bool

    @property
    def open(self) -> bool:
        """Whether a transaction has begun."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Flow[Answer]:
        """Run one statement, its values bound at $1, $2 and so on."""
        ...

    def commits_each(self) -> Flow[bool]:
        """Whether a statement would be committed by itself: no transaction is open, and none begins with it."""
        ...

    def ask(self, sql: str, values: Sequence[Any] = (), then: str = "") -> Flow[Answer]:
        """The same for a statement of our stores, each of whose values is cast, by the shortest way.

        `then` is another one, to go right behind it.
        """
        ...

    def begin(self, *, asking: bool = False) -> Flow[None]:
        """Open a transaction, or a savepoint in the one that is open. If an `ask` is next it may bring that along."""
        ...

    def take(self) -> Flow[None]:
        """The same for whoever asks next and ends it: a transaction that is open already is taken over, as a whole."""
        ...

    @property
    def closes(self) -> bool:
        """Whether there is a `close` for what has begun, as it is now."""
        ...

    def close(self, sql: str, values: Sequence[Any] = ()) -> Flow[Exception | None]:
        """Run one statement and commit, at once.

        What comes back is why the statement failed: then nothing was committed, and it is to be rolled back. What is
        raised is what became of the commit.
        """
        ...

    def commit(self) -> Flow[None]:
        """End what `begin` began, and keep it."""
        ...

    def commit_asked(self) -> Flow[None]:
        """End it and keep what was asked for here, but nothing that its owner has not written yet, or would do then."""
        ...

    def rollback(self) -> Flow[None]:
        """End what `begin` began, and undo it."""
        ...


def drive(flow: Flow[T]) -> T:
    """Run a flow under threads: what it yields is the answer already."""
    try:
        answer = next(flow)
        while True:
            answer = flow.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def drive_async(flow: Flow[T]) -> T:
    """Run a flow under asyncio: await what it yields; what is raised there is raised in the flow."""
    try:
        awaited = next(flow)
        while True:
            try:
                answer = await awaited
            except BaseException as error:  # noqa: BLE001 - the flow decides; a cancellation must reach it too
                awaited = flow.throw(error)
            else:
                awaited = flow.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
