"""Django's connections: `django.db.connection`, or `connections["alias"]`. Transactions are those of `atomic`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connections as by_alias
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from oncekey.effects import connections
from oncekey.effects.link import PLACE, Answer, Database, Flow, Link
from oncekey.errors import ConfigurationError

DATABASES: dict[str, Database] = {"postgresql": "postgresql", "sqlite": "sqlite"}


class DjangoLink:
    """The connection of this thread under one alias."""

    awaited = False

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.joined = False
        vendor = by_alias[alias].vendor
        if vendor not in DATABASES:
            raise ConfigurationError(f"transactions work on {' and '.join(DATABASES)} today, and {alias!r} is {vendor}")
        self.database = DATABASES[vendor]
        self._block: Any = None
        self._hooks = 0

    @property
    def wrapper(self) -> Any:
        """The connection, which belongs to a thread."""
        return by_alias[self.alias]

    @property
    def open(self) -> bool:
        """Whether a transaction has begun."""
        return bool(self.wrapper.in_atomic_block)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Flow[Answer]:
        """Run one statement; a driver that we do not know is spoken to through Django's cursor."""
        self.wrapper.ensure_connection()
        driver = connections.found(self.wrapper.connection)
        if driver is not None:
            return (yield from driver.execute(sql, values))
        order = [int(found[1]) - 1 for found in PLACE.finditer(sql)]
        with self.wrapper.cursor() as cursor:
            cursor.execute(PLACE.sub("%s", sql.replace("%", "%%")), [values[place] for place in order])
            rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
            return Answer(rows, cursor.rowcount)

    def ask(self, sql: str, values: Sequence[Any] = (), then: str = "") -> Flow[Answer]:
        """The same for one of ours."""
        self.wrapper.ensure_connection()
        driver = connections.found(self.wrapper.connection)
        if driver is not None:
            return (yield from driver.ask(sql, values, then))
        answer = yield from self.execute(sql, values)
        if then:
            yield from self.execute(then)
        return answer

    def commits_each(self) -> Flow[bool]:
        """Outside of `atomic`, as Django is unless told otherwise."""
        yield from ()
        return not self.wrapper.in_atomic_block and self.wrapper.get_autocommit()

    def begin(self, *, asking: bool = False) -> Flow[None]:
        """Enter `atomic`."""
        del asking
        yield
        self.joined = self.open
        self._hooks = len(self.wrapper.run_on_commit)
        self._block = transaction.atomic(using=self.alias)
        self._block.__enter__()

    def take(self) -> Flow[None]:
        """As `begin`: Django itself ends the outermost `atomic`, and nobody else may."""
        yield from self.begin()

    @property
    def closes(self) -> bool:
        """Never: Django's commit has hooks."""
        return False

    def close(self, sql: str, values: Sequence[Any] = ()) -> Flow[Exception | None]:
        """See `closes`."""
        raise TypeError(sql, values)

    def commit(self) -> Flow[None]:
        """Leave `atomic`. Code inside may have asked for a rollback, and then that is what it does."""
        yield
        self._block.__exit__(None, None, None)

    def commit_asked(self) -> Flow[None]:
        """The same, without what the code inside wanted to happen after it, or that it be rolled back."""
        del self.wrapper.run_on_commit[self._hooks :]
        self.wrapper.needs_rollback = False
        yield from self.commit()

    def rollback(self) -> Flow[None]:
        """Leave `atomic` by an error."""
        yield
        self._block.__exit__(RuntimeError, RuntimeError("undone by OnceKey"), None)


def link(connection: object) -> Link | None:
    """A Link, if it is one of Django's connections."""
    if isinstance(connection, ConnectionProxy | BaseDatabaseWrapper):
        return DjangoLink(connection.alias)
    return None
