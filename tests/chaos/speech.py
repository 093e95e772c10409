"""HTTP by hand, for asyncio: a client can stop in the middle of anything, and a server is forty lines."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

LINE = b"\r\n"


class Answer(NamedTuple):
    """A whole response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for found, value in self.headers if found == name]

    def json(self) -> Any:
        return json.loads(self.body)


class Cut(Exception):
    """The response did not come whole: what was asked for may have happened or not."""


class NotSent(Exception):
    """No byte of the request left: what was asked for has not happened."""


def request(path: str, headers: dict[str, str], body: bytes, method: str = "POST") -> bytes:
    """A whole request; the connection serves this one alone."""
    lines = [f"{method} {path} HTTP/1.1", "Host: chaos", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is gone afterwards, however that comes."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError as error:
        raise NotSent(str(error)) from error
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ask(port: int, data: bytes, within: float) -> Answer:
    """Send these bytes and read the response, or raise Cut or NotSent."""
    try:
        async with asyncio.timeout(within), connected(port) as (reader, writer):
            writer.write(data)
            await writer.drain()
            return await read_answer(reader)
    except TimeoutError as error:
        raise Cut("no answer in time") from error
    except OSError as error:
        raise Cut(str(error)) from error


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """One response with a content-length."""
    try:
        head = await reader.readuntil(LINE + LINE)
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = int(dict(headers).get("content-length", "0"))
        return Answer(int(first.split()[1]), headers, await reader.readexactly(length))
    except (asyncio.IncompleteReadError, OSError, ValueError, IndexError) as error:
        raise Cut(f"the response did not come whole: {error}") from error


Handler = Callable[[str, Any], Awaitable[tuple[int, Any]]]


async def serve(handler: Handler) -> asyncio.Server:
    """A server on a free port that reads JSON and answers JSON, a connection for each request."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(LINE + LINE)).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
            asked = await reader.readexactly(length)
            status, told = await handler(head.split()[1], json.loads(asked or b"null"))
            body = json.dumps(told).encode()
            writer.write(b"HTTP/1.1 %d Told\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)
            await writer.drain()
        writer.close()

    return await asyncio.start_server(served, "127.0.0.1", 0)


def port_of(server: asyncio.Server) -> int:
    """Where it listens."""
    return int(server.sockets[0].getsockname()[1])
