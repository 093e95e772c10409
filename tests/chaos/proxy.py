"""A TCP proxy that breaks on demand: one for each link between a client, a worker, its store and its provider."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.speech import port_of

CHUNK = 65_536
# Shown each chunk before it goes on; whoever answers True has seen what it waited for, and is not asked again.
Seen = Callable[[bytes], Awaitable[bool]]
Hit = Callable[[str], None]


class Way(StrEnum):
    """Which direction a rule is for."""

    THERE = "request"
    BACK = "reply"


class Ill(StrEnum):
    """What can be wrong with a link."""

    DROP = "lost"  # the next chunk that goes this way is swallowed, and its connection cut
    HALVE = "cut in the middle"  # half of it arrives, and then its connection is cut
    SLOW = "slow"  # every chunk takes longer, while it lasts
    HOLE = "black hole"  # nothing arrives while it lasts; then all of it does, late


@dataclass
class Rule:
    """One ill on one direction: for a number of chunks, or until a time."""

    ill: Ill
    way: Way
    left: int = 0
    until: float = 0.0
    told: bool = False

    def takes(self, way: Way, now: float) -> bool:
        """Whether this chunk is hit; one of the counted ones is used up."""
        if way is not self.way:
            return False
        if self.until:
            return now < self.until
        self.left -= 1
        return self.left >= 0


@dataclass
class Link:
    """One listening port in front of another."""

    name: str
    target: int
    hit: Hit
    rules: list[Rule] = field(default_factory=list)
    seen: dict[Way, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen, and say where."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=512)
        return port_of(self._server)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return port_of(self._server)

    def cut(self) -> None:
        """Reset every connection that is open now."""
        if self._open:
            self.hit(f"{self.name}: reset")
        for task in self._open:
            task.cancel()

    def ail(self, ill: Ill, way: Way, chunks: int = 1) -> None:
        """Hit so many of the next chunks."""
        self.rules.append(Rule(ill, way, left=chunks))

    def ail_for(self, ill: Ill, way: Way, seconds: float) -> None:
        """Hit all chunks for so long."""
        self.rules.append(Rule(ill, way, until=asyncio.get_running_loop().time() + seconds))

    def heal(self) -> None:
        """Be a wire again."""
        self.rules.clear()
        self.seen.clear()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        other: asyncio.StreamWriter | None = None
        try:
            back, other = await asyncio.open_connection("127.0.0.1", self.target)
            await self._both(self._pump(Way.THERE, reader, other), self._pump(Way.BACK, back, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            for end in (writer, other):
                if end is not None:
                    end.transport.abort()

    async def _both(self, *ways: Awaitable[None]) -> None:
        """Until one direction has failed or both have ended."""
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _pump(self, way: Way, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK):
            await self._show(way, data)
            if self.rules:
                try:
                    data = await self._suffer(way, data)
                except Halved as half:
                    sink.write(half.rest)
                    await sink.drain()
                    raise
            sink.write(data)
            await sink.drain()
        with contextlib.suppress(OSError):
            sink.write_eof()

    async def _show(self, way: Way, data: bytes) -> None:
        seen = self.seen.pop(way, None)
        if seen is not None and not await seen(data):
            self.seen.setdefault(way, seen)

    async def _suffer(self, way: Way, data: bytes) -> bytes:
        now = asyncio.get_running_loop().time()
        self.rules[:] = [rule for rule in self.rules if rule.left > 0 or rule.until > now]
        for rule in list(self.rules):
            if rule.takes(way, now):
                self._tell(rule)
                if rule.ill is Ill.DROP:
                    raise ConnectionAbortedError
                if rule.ill is Ill.HALVE:
                    raise Halved(data[: len(data) // 2])
                await asyncio.sleep(0.1 if rule.ill is Ill.SLOW else rule.until - now)
        return data

    def _tell(self, rule: Rule) -> None:
        """A lasting ill is one fault, however many chunks it hits."""
        if not rule.told:
            lasting = rule.ill in {Ill.SLOW, Ill.HOLE}
            self.hit(f"{self.name}: {rule.ill}" if lasting else f"{self.name}: {rule.way} {rule.ill}")
        rule.told = rule.until > 0


class Halved(ConnectionAbortedError):
    """Half of a chunk still goes out."""

    def __init__(self, rest: bytes) -> None:
        super().__init__()
        self.rest = rest
