"""A handler that stands still where its key says; run as a program it shows that it got there, and waits to be killed.

python -m tests.latch.shop asgi sqlite:///once.db ledger
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from oncekey import Policy
from tests.latch.gateways import Colour, Gateway

if TYPE_CHECKING:
    from oncekey.core.policy import GuaranteeName

# Where a request stops, and what the next one finds if nothing deduplicates: it runs, or nobody knows.
POINTS = {"before": 201, "inside": 409, "sent": 409, "kept": 409, "after": 409}
LEASE_FOR = 0.6
GUARANTEES = ("at_most_once", "deduplicated_downstream")


def key(guarantee: str, point: str) -> str:
    return f"{guarantee}:{point}"


def policy(guarantee: str) -> Policy:
    return Policy(latch=True, lease_for=LEASE_FOR, guarantee=cast("GuaranteeName", guarantee))


class Shop:
    """Charges once for each key; the ledger has a line for each request that its provider has seen."""

    def __init__(self, ledger: Path, *, stops: bool) -> None:
        self.ledger = ledger
        self.stops = stops

    async def __call__(self, op: Any) -> bytes:
        await self.at("before", op)

        async def charge() -> str:
            async with op.external("psp.charge", provider="adyen", target="POST https://psp.example/charges") as call:
                await self.at("inside", op)
                with self.ledger.open("a") as ledger:
                    ledger.write(f"{op.key} {call.key}\n")
                await self.at("sent", op)
                call.reference = f"ch_{op.key}"
            return f"ch_{op.key}"

        paid = await op.step("charge", charge)
        await self.at("kept", op)
        async with op.external("mail"):
            await self.at("after", op)
        return paid.encode()  # type: ignore[no-any-return]

    async def at(self, point: str, op: Any) -> None:
        if not self.stops or not op.key.endswith(f":{point}"):
            return
        os.write(1, f"{op.key}\n".encode())  # one write: the threads of both guarantees come here
        if getattr(op, "threads", False):
            threading.Event().wait(600)
        await asyncio.sleep(600)

    def charges(self, key: str) -> list[str]:
        """The provider's keys under which this operation was charged."""
        lines = [line.split() for line in self.ledger.read_text().splitlines()] if self.ledger.exists() else []
        return [derived for of, derived in lines if of == key]


def main(colour: Colour, url: str, ledger: str) -> None:
    shop = Shop(Path(ledger), stops=True)

    def serve(guarantee: str) -> None:
        with Gateway(colour, shop, url, policy=policy(guarantee)) as gateway:
            gateway.ask_all([key(guarantee, point) for point in POINTS])

    with ThreadPoolExecutor(len(GUARANTEES)) as pool:
        list(pool.map(serve, GUARANTEES))


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]
