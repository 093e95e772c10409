"""A request that has arrived whole, and a reply to send: what every gateway translates into."""

from __future__ import annotations

from dataclasses import dataclass

from oncekey.core.record import NO_LABEL, Label

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Request:
    """A whole request. Header names are in lower case; repeated fields stay separate, in their order."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes

    def lines(self, name: bytes) -> list[bytes]:
        """All values of a header, one per field line."""
        return [value for found, value in self.headers if found == name]

    def header(self, name: bytes) -> bytes:
        """The value of a header, its lines joined as RFC 9110 joins them; empty if it is absent."""
        return b", ".join(self.lines(name))


@dataclass(slots=True)
class Reply:
    """A whole answer. Header names of our own are in lower case; stored ones are as the application spelt them.

    `replays` is the record whose answer it gives without a question to the store (http.recall), `label` whose it is.
    """

    status: int
    headers: Headers
    body: bytes
    replays: bytes = b""
    label: Label = NO_LABEL
