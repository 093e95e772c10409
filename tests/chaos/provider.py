"""The provider: it charges, keeps a ledger of every charge, deduplicates nothing, and can be told that none may land.

A process of its own. It tells the harness of each effect at the instant at which it has landed, before it replies, and
waits for a word from there: that is where workers are killed and paused.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import sqlite3
import time
from pathlib import Path
from typing import Any

from tests.chaos import speech
from tests.chaos.history import Effect, Operation

SCHEMA = """
CREATE TABLE effect (
    receipt TEXT PRIMARY KEY, ref TEXT, caller TEXT, key TEXT, attempt INTEGER, payload TEXT, amount INTEGER,
    pid INTEGER, at REAL
);
CREATE INDEX effect_ref ON effect (ref);
CREATE TABLE cancelled (ref TEXT PRIMARY KEY, upto INTEGER);
"""
# A harness that does not answer must not stop the world.
WORD_WITHIN = 2.0


class Ledger:
    """The file. Only this process writes it; it lives for one run and survives no crash of its own."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; {SCHEMA}")

    def charge(self, asked: dict[str, Any]) -> str | None:
        """The receipt of a new effect; None if the attempt was cancelled before it came."""
        found = self._file.execute("SELECT upto FROM cancelled WHERE ref = ?", (asked["ref"],)).fetchone()
        if found is not None and asked["attempt"] <= found[0]:
            return None
        receipt = secrets.token_hex(8)
        row = {**asked, "receipt": receipt, "at": time.monotonic()}
        self._file.execute(
            "INSERT INTO effect VALUES (:receipt, :ref, :caller, :key, :attempt, :payload, :amount, :pid, :at)", row
        )
        return receipt

    def cancel(self, ref: str, upto: int) -> list[dict[str, Any]]:
        """From now on no attempt up to this one lands; the answer is what has landed."""
        self._file.execute("INSERT OR REPLACE INTO cancelled VALUES (?, ?)", (ref, upto))
        columns = ("receipt", "caller", "key", "amount")
        rows = self._file.execute(f"SELECT {', '.join(columns)} FROM effect WHERE ref = ? ORDER BY at", (ref,))
        return [dict(zip(columns, row, strict=True)) for row in rows]


def effects(path: Path) -> list[Effect]:
    """Everything that took effect, read by whoever wants to judge."""
    with sqlite3.connect(path) as file:
        rows = file.execute("SELECT caller, key, attempt, payload, receipt, at, pid FROM effect ORDER BY at")
        return [Effect(Operation(caller, key), *rest) for caller, key, *rest in rows]


class Provider:
    """What is asked of it."""

    def __init__(self, ledger: Ledger, harness: Harness) -> None:
        self.ledger = ledger
        self.harness = harness

    async def answer(self, path: str, asked: Any) -> tuple[int, Any]:
        if path == "/cancel":
            return 200, self.ledger.cancel(asked["ref"], asked["upto"])
        if asked["busy"] and asked["attempt"] == 1:
            return 503, {"nothing": "was done"}
        await asyncio.sleep(asked["delay"])
        receipt = self.ledger.charge(asked)
        told = {name: asked[name] for name in ("caller", "key", "attempt", "pid")}
        if receipt is None:
            await self.harness.tell({**told, "word": "effect-refused"})
            return 410, {"nothing": "was done, and nothing will be"}
        await self.harness.tell({**told, "word": "landed"})
        return 200, {"receipt": receipt}


class Harness:
    """The line to whoever breaks things: a line goes out for each effect, and a line comes back for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._listening = asyncio.create_task(self._listen(reader))

    async def tell(self, what: dict[str, Any]) -> None:
        """Tell, and wait until the harness has done what it wanted at this instant."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps({**what, "number": number, "at": time.monotonic()}).encode() + b"\n")
        try:
            await asyncio.wait_for(self._waiting[number], WORD_WITHIN)
        except TimeoutError:
            del self._waiting[number]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            waiting = self._waiting.pop(int(line), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
        os._exit(0)  # the harness is gone, and with it the reason to be here


async def main(ledger: Path, harness_port: int) -> None:
    harness = Harness(*await asyncio.open_connection("127.0.0.1", harness_port))
    server = await speech.serve(Provider(Ledger(ledger), harness).answer)
    await harness.tell({"word": "ready", "port": speech.port_of(server), "pid": os.getpid()})
    await server.serve_forever()
