"""SQLAlchemy 2: Session, AsyncSession, scoped sessions, Connection and AsyncConnection.

Statements go to the driver's own connection where that is one that we know, and through SQLAlchemy where it is not
(asyncpg, psycopg2). Transactions are always SQLAlchemy's, so that a session knows what became of its objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.util import greenlet_spawn

from oncekey.effects import connections
from oncekey.effects.link import PLACE, Answer, Database, Flow, Link
from oncekey.errors import ConfigurationError

DATABASES: dict[str, Database] = {"postgresql": "postgresql", "sqlite": "sqlite"}


class SqlalchemyLink:
    """A session or a connection; both have begin, begin_nested, in_transaction and execute."""

    def __init__(self, owner: Any, *, awaited: bool) -> None:
        self.owner = owner
        self.awaited = awaited
        self.joined = False
        self.database = _database(owner)
        self._block: Any = None
        # The transaction that was open at the last look, and the connection of the driver in it.
        self._seen: tuple[Any, Any] = None, None
        self._raw: Any = None

    @property
    def open(self) -> bool:
        """Whether a transaction has begun."""
        return bool(self.owner.in_transaction())

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Flow[Answer]:
        """Run one statement in the owner's transaction, which SQLAlchemy begins if there is none."""
        driver = yield from self._driver()
        if driver is not None:
            answer: Answer = yield from driver.execute(sql, values)
            return answer
        named = {f"p{number}": value for number, value in enumerate(values, 1)}
        result = yield self.owner.execute(text(PLACE.sub(r":p\1", sql)), named)
        rows = [tuple(row) for row in result.fetchall()] if result.returns_rows else []
        return Answer(rows, result.rowcount)

    def ask(self, sql: str, values: Sequence[Any] = (), then: str = "") -> Flow[Answer]:
        """The same for one of ours."""
        driver = yield from self._driver()
        if driver is not None:
            answer: Answer = yield from driver.ask(sql, values, then)
            return answer
        answer = yield from self.execute(sql, values)
        if then:
            yield from self.execute(then)
        return answer

    def commits_each(self) -> Flow[bool]:
        """SQLAlchemy begins by itself, unless the driver's connection was set to AUTOCOMMIT."""
        driver = yield from self._driver()
        return driver is not None and bool((yield from driver.commits_each()))

    def begin(self, *, asking: bool = False) -> Flow[None]:
        """SQLAlchemy's transaction, or a savepoint in the one that has begun."""
        del asking
        self.joined = self.open
        self._block = yield self.owner.begin_nested() if self.joined else self.owner.begin()
        if self.database == "sqlite" and not self.joined:
            yield from self._take_write_lock()

    def take(self) -> Flow[None]:
        """The owner's transaction, whoever has begun it."""
        if not self.open:
            yield from self.begin()
            return
        self.joined, self._block = False, self.owner
        if self.database == "sqlite":
            yield from self._take_write_lock()

    def _take_write_lock(self) -> Flow[None]:
        # The driver would begin at the first write, when a read may already have made that impossible.
        driver = yield from self._driver()
        if driver is not None and not driver.connection.in_transaction:
            yield from driver.execute("BEGIN IMMEDIATE")

    @property
    def closes(self) -> bool:
        """Never: a session's own commit has hooks, and writes what is still unwritten."""
        return False

    def close(self, sql: str, values: Sequence[Any] = ()) -> Flow[Exception | None]:
        """See `closes`."""
        raise TypeError(sql, values)

    def commit(self) -> Flow[None]:
        """Keep it."""
        yield self._block.commit()

    def commit_asked(self) -> Flow[None]:
        """The driver's commit, not the session's, which would write what it still holds and tell its listeners."""
        yield from self._driver()
        dbapi = self._raw.dbapi_connection
        yield greenlet_spawn(dbapi.commit) if self.awaited else dbapi.commit()
        yield self.owner.rollback()

    def rollback(self) -> Flow[None]:
        """Undo it; without a savepoint, whatever is open now: the caller may have ended what we had begun."""
        if self.joined:
            yield self._block.rollback()
            return
        yield self.owner.rollback()
        if isinstance(self.owner, Connection | AsyncConnection):
            # It knows nothing of what the driver has begun by itself.
            driver = yield from self._driver()
            if driver is not None and driver.open:
                yield driver.connection.rollback()

    def _driver(self) -> Flow[Any]:
        """The driver's own connection; as long as the transaction is the same one, so is that."""
        transaction, driver = self._seen
        if transaction is None or self.owner.get_transaction() is not transaction:
            driver = yield from self._found()
            self._seen = self.owner.get_transaction(), driver
        return driver

    def _found(self) -> Flow[Any]:
        connection = self.owner
        if isinstance(connection, Session | AsyncSession):
            connection = yield connection.connection()
        self._raw = raw = (yield connection.get_raw_connection()) if self.awaited else connection.connection
        return connections.found(raw.driver_connection)


def _database(owner: Any) -> Database:
    bind = owner.get_bind() if isinstance(owner, Session | AsyncSession) else owner
    name = bind.dialect.name
    if name not in DATABASES:
        raise ConfigurationError(f"transactions work on {' and '.join(DATABASES)} today, and this is {name}")
    return DATABASES[name]


def link(connection: object) -> Link | None:
    """A Link, if it is SQLAlchemy's."""
    if isinstance(connection, Session | Connection):
        return SqlalchemyLink(connection, awaited=False)
    if isinstance(connection, scoped_session | async_scoped_session):
        connection = connection()
    if isinstance(connection, AsyncSession | AsyncConnection):
        return SqlalchemyLink(connection, awaited=True)
    return SqlalchemyLink(connection, awaited=False) if isinstance(connection, Session | Connection) else None
