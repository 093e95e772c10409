"""An application for `oncekey reconcile`: its resolver writes each inquiry to a file, so that doubles are seen."""

from __future__ import annotations

import os

from oncekey import SHARED, OnceKey
from oncekey.reconcile import Finding, Inquiry

once = OnceKey(os.environ["BANK_STORE"], scope=SHARED)


@once.resolver("POST /payments")
def look(inquiry: Inquiry) -> Finding:
    """Everything was paid."""
    line = f"{inquiry.id.hex()}\n".encode()
    file = os.open(os.environ["BANK_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    return inquiry.landed(201, {"paid": True}, seen="in the bank's file")


awaiting = OnceKey(os.environ["BANK_STORE"], scope=SHARED)


@awaiting.resolver("POST /payments")
async def look_async(inquiry: Inquiry) -> Finding:
    """The same, as a coroutine."""
    return look(inquiry)


empty = OnceKey("memory://", scope=SHARED)
