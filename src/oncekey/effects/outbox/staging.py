"""The outbox as an application uses it: messages put down in its own transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncekey.effects.connections import recognised
from oncekey.effects.link import Flow as Talk
from oncekey.effects.link import Link, drive, drive_async
from oncekey.effects.outbox import blocks
from oncekey.effects.outbox.message import row_of
from oncekey.effects.outbox.statements import TABLE, checked, statements
from oncekey.errors import ConfigurationError

_NO_TRANSACTION: Final = (
    "there is no transaction on this connection, so the message would be sent whatever becomes of your writes: begin "
    "one first (psycopg: connection.transaction(); Django: atomic(); sqlite3: BEGIN), and stage inside of it"
)


class Outbox:
    """Messages that are sent if, and only if, the transaction in which they are staged commits.

    `stage` takes the caller's connection: psycopg, SQLAlchemy, Django, sqlite3; `stage_async` those for asyncio.
    Nothing here commits. A relay sends what has been committed: `oncekey relay`, or a `Relay` of your own.
    """

    def __init__(self, table: str = TABLE) -> None:
        self.table = checked(table)

    def stage(
        self,
        connection: object,
        topic: str,
        body: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        type: str = "",  # noqa: A002 - the column's name, and what people call it
    ) -> str:
        """Put a message down and return its id, which it keeps however often it is sent.

        `body` is bytes, text, or what JSON can say. Messages of one topic with the same `key` are sent one after the
        other, in the order in which they were staged; without a key there is no order.
        """
        return drive(self._stage(self._link(connection, awaited=False), row_of(topic, body, headers, key, type)))

    async def stage_async(
        self,
        connection: object,
        topic: str,
        body: object,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        type: str = "",  # noqa: A002 - as above
    ) -> str:
        """The same on a connection for asyncio."""
        flow = self._stage(self._link(connection, awaited=True), row_of(topic, body, headers, key, type))
        return await drive_async(flow)

    def migrate(self, connection: object) -> None:
        """Make the table where it is not there, in a transaction of its own, or in the one that is open."""
        drive(blocks.carry_out(blocks.migrate, self._link(connection, awaited=False), self.table))

    async def migrate_async(self, connection: object) -> None:
        """The same on a connection for asyncio."""
        await drive_async(blocks.carry_out(blocks.migrate, self._link(connection, awaited=True), self.table))

    def _stage(self, link: Link, row: dict[str, Any]) -> Talk[str]:
        if (yield from link.commits_each()):
            raise ConfigurationError(_NO_TRANSACTION)
        yield from link.execute(*statements(link.database, self.table).ask("stage", row))
        return str(row["id"])

    @staticmethod
    def _link(connection: object, *, awaited: bool) -> Link:
        link = recognised(connection)
        if link.awaited is not awaited:
            mine, right = ("asyncio", "await stage_async(...)") if link.awaited else ("threads", "stage(...)")
            raise ConfigurationError(f"{type(connection).__name__} is a connection for {mine}: use {right}")
        return link
