"""The two drivers of a flow: each block runs in a transaction of its own, on a connection that the user gives.

`connect()` gives a context manager whose value is a connection or session: a psycopg pool's `connection`, an SQLAlchemy
`sessionmaker` or `engine.connect`, Django's `transaction.atomic`. What it gives is what the handler gets. There is
a verdict only when both our own commit and the context manager have ended: then the transaction is durable.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from typing import Any, TypeVar

from oncekey.effects.connections import recognised
from oncekey.effects.inbox.flows import Block, Build, Call, Flow
from oncekey.effects.inbox.statements import statements
from oncekey.effects.link import Flow as Talk
from oncekey.effects.link import Link, drive, drive_async
from oncekey.errors import ConfigurationError

T = TypeVar("T")
Connect = Callable[[], AbstractContextManager[Any]]
AsyncConnect = Callable[[], AbstractAsyncContextManager[Any]]
# The handler, given the message and what `connect` gave; a value under threads, an awaitable under asyncio.
Run = Callable[[Any, Any], Any]


def carry_out(block: Block[T], link: Link, table: str, run: Callable[[Any], Any]) -> Talk[T]:
    """Run a block in a transaction."""
    yield from link.begin()
    try:
        value = yield from talk(block, link, table, run)
    except BaseException:
        # What cannot be rolled back is a lost connection, and the server has done it.
        with suppress(Exception):
            yield from link.rollback()
        raise
    yield from link.commit()
    return value


def talk(block: Block[T], link: Link, table: str, run: Callable[[Any], Any]) -> Talk[T]:
    """Answer what a block asks, in the transaction that is open."""
    known = statements(link.database, table)
    answer: Any = None
    try:
        while True:
            step = block.send(answer)
            if isinstance(step, Call):
                answer = yield run(step.message)
            elif isinstance(step, Build):
                for statement in known.schema:
                    yield from link.execute(*statement)
            else:
                answer = (yield from link.execute(*known.ask(step.name, step.values))).rows
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def linked(given: Any, *, awaited: bool) -> Link:
    """How to work on what `connect` gave; refused if it is of the other colour."""
    link = recognised(_djangos() if given is None else given)
    if link.awaited is not awaited:
        mine, right = ("asyncio", "AsyncInbox") if link.awaited else ("threads", "Inbox")
        raise ConfigurationError(f"{type(given).__name__} is a connection for {mine}: use {right}")
    return link


def _djangos() -> Any:
    """Django's `atomic` gives nothing: its connection is known to everybody."""
    return importlib.import_module("django.db").connection


class Once:
    """A flow under threads."""

    def __init__(self, connect: Connect, table: str, run: Run) -> None:
        self._connect = connect
        self._table = table
        self._run = run

    def __call__(self, flow: Flow[T]) -> T:
        """Run it to its end."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self.together(step.block)
                except Exception as error:  # noqa: BLE001 - the flow decides what it means
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def together(self, block: Block[T]) -> T:
        """Run one block in a transaction of its own."""
        with self._connect() as given:
            return drive(
                carry_out(block, linked(given, awaited=False), self._table, lambda message: self._run(message, given))
            )


class AsyncOnce:
    """A flow under asyncio."""

    def __init__(self, connect: AsyncConnect, table: str, run: Run) -> None:
        self._connect = connect
        self._table = table
        self._run = run

    async def __call__(self, flow: Flow[T]) -> T:
        """Run it to its end."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self.together(step.block)
                except Exception as error:  # noqa: BLE001 - the flow decides what it means
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def together(self, block: Block[T]) -> T:
        """Run one block in a transaction of its own."""
        async with self._connect() as given:
            talking = carry_out(
                block, linked(given, awaited=True), self._table, lambda message: self._run(message, given)
            )
            return await drive_async(talking)
