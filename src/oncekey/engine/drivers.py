"""The two drivers: they answer a flow's commands, one by one, until it returns."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncekey.core.commands import Performer
    from oncekey.core.decision import Decision
    from oncekey.core.flows import Answer, Flow


def drive(flow: Flow, performer: Performer[Answer]) -> Decision:
    """Run a flow under threads."""
    try:
        command = next(flow)
        while True:
            command = flow.send(command.on(performer))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def drive_async(flow: Flow, performer: Performer[Awaitable[Answer]]) -> Decision:
    """Run a flow under asyncio."""
    try:
        command = next(flow)
        while True:
            command = flow.send(await command.on(performer))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
