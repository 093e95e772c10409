"""The conversation that both wires carry: a plan's commands as bytes, a server's replies as values. No I/O.

A script that the server does not know (after a restart, a failover, SCRIPT FLUSH) is sent in full, it alone: nothing
of it was run.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

import hiredis
from redis.exceptions import NoScriptError

from oncekey.stores.redis.commands import Command

T = TypeVar("T")
Steps = Generator[list[Command], list[Any], T]


class Message(NamedTuple):
    """What to send, and how many replies come back."""

    payload: bytes
    replies: int


Talk = Generator[Message, list[Any], T]


def talk(steps: Steps[T]) -> Talk[T]:
    """Run a plan's steps: yields what to send, is sent the replies, errors among them as values."""
    try:
        commands = next(steps)
        while True:
            replies = yield _message([command.words for command in commands])
            unknown = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if unknown:
                again = yield _message([commands[at].in_full() for at in unknown])
                for at, reply in zip(unknown, again, strict=True):
                    replies[at] = reply
            commands = steps.send(replies)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _message(many: list[tuple[Any, ...]]) -> Message:
    if len(many) == 1:
        return Message(hiredis.pack_command(many[0]), 1)
    return Message(b"".join(map(hiredis.pack_command, many)), len(many))
