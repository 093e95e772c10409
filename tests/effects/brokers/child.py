"""A consumer that is killed: `python -m tests.effects.brokers.child RIG ADDRESS QUEUE DATABASE MODE`.

Modes: `ack` dies after the commit and before the acknowledgement, `handler` dies in the handler, after its write;
`slow` says `in` when the handler has begun, and takes a while.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.effects.brokers.rigs import rig
from tests.effects.brokers.running import shop

SLOW_FOR = 0.4


def die(*values: Any) -> None:
    """As a crash would."""
    os.kill(os.getpid(), signal.SIGKILL)


def slow(name: str) -> None:
    """Say that it has begun, and take a while."""
    sys.stdout.write("in\n")
    sys.stdout.flush()
    time.sleep(SLOW_FOR)


def main(name: str, address: str, queue: str, database: str, mode: str) -> None:
    """Consume until the end."""
    made = rig(name, address, queue)
    ours = shop(Path(database).parent)
    consumer = made.consumer(ours.handler)
    if mode == "ack":
        setattr(consumer, made.acknowledgement, die)
    elif mode == "handler":
        ours.hook = die
    else:
        ours.hook = slow
    if consumer.awaited:
        asyncio.run(consumer.run())
    else:
        consumer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
