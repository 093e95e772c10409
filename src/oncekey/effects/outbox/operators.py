"""What operators do with an outbox: look, count, send dead letters again, forget them, make the table."""

from __future__ import annotations

from types import TracebackType
from typing import Self
from uuid import UUID

from oncekey.effects.outbox import blocks
from oncekey.effects.outbox.blocks import Counts, Letters
from oncekey.effects.outbox.places import place_of
from oncekey.effects.outbox.statements import TABLE
from oncekey.errors import ConfigurationError


class OutboxDesk:
    """An outbox by its store's URL, on a connection of its own. For asyncio."""

    def __init__(self, store: str, *, table: str = TABLE, store_for: float = 10.0) -> None:
        self.place = place_of(store, table, store_for)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.place.close()

    async def migrate(self) -> None:
        """Make the table, where it is not there."""
        await self.place.together(blocks.migrate)

    async def check(self) -> None:
        """SchemaMissing says what to do where the table is missing."""
        await self.place.together(blocks.check)

    async def count(self) -> Counts:
        """How much there is."""
        return await self.place.together(blocks.count)

    async def letters(self, *, after: int | None = None, limit: int = 100) -> Letters:
        """A page of the dead letters, oldest first."""
        return await self.place.together(lambda: blocks.letters(after, limit))

    async def requeue(self, id_: str) -> bool:
        """Let a dead letter be sent again, all its attempts given back. False: it is none."""
        name = checked_id(id_)
        return bool(await self.place.together(lambda: blocks.requeue(name)))

    async def requeue_all(self) -> int:
        """Let all dead letters be sent again, and say how many."""
        return await self.place.together(lambda: blocks.requeue(None))

    async def discard(self, id_: str) -> bool:
        """Forget a dead letter. False: it is none."""
        name = checked_id(id_)
        return await self.place.together(lambda: blocks.discard(name))


def checked_id(text: str) -> str:
    """A message's id in its usual spelling."""
    try:
        return str(UUID(text))
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is no message's id: write it as the list of dead letters shows it"
        ) from None
