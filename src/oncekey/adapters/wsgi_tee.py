"""The server's input of a request that is only watched: read by the application, and noted as it passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Tee:
    """The server's input, as the application reads it; what it reads is noted. Other ways of reading are not seen."""

    def __init__(self, stream: Any, take: Callable[[bytes], int], whole: Callable[[], None], declared: str) -> None:
        self._stream = stream
        self._take = take
        self._whole = whole
        # With more digits than these nothing is as long, and Python reads no number of any length.
        digits = declared.lstrip("0")[:19] or "0"
        self._declared = int(digits) if declared.isascii() and declared.isdigit() else -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[bytes]:
        for line in self._stream:
            yield self._passed(line)
        self._whole()

    def read(self, size: int = -1, /) -> bytes:
        """As the server's."""
        return self._passed(self._stream.read(*_asked(size)), asked=size)

    def readline(self, size: int = -1, /) -> bytes:
        """As the server's."""
        return self._passed(self._stream.readline(*_asked(size)), asked=size)

    def readlines(self, hint: int = -1, /) -> list[bytes]:
        """As the server's."""
        lines: list[bytes] = self._stream.readlines(*_asked(hint))
        self._passed(b"".join(lines), asked=hint)
        return lines

    def _passed(self, chunk: bytes, asked: int = -1) -> bytes:
        taken = self._take(chunk)
        ended = (not chunk and asked != 0) if self._declared < 0 else taken == self._declared
        if ended:
            self._whole()
        return chunk


def _asked(size: int) -> tuple[int, ...]:
    """Servers' streams need not take a size that says none."""
    return () if size is None or size < 0 else (size,)
