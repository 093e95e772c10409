"""A request that has arrived whole, and a reply to send: what every gateway translates into."""

from __future__ import annotations

from dataclasses import dataclass, field

from oncekey.core.record import NO_LABEL, Label

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class Request:
    """A whole request. Header names are put in lower case; repeated fields stay separate, in their order."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    # The last value by each name: the only one, where no name comes twice.
    _values: dict[bytes, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._values = dict(self.headers)
        if self.headers and not b"".join(self._values).islower():
            self.headers = [(name.lower(), value) for name, value in self.headers]
            self._values = dict(self.headers)

    def lines(self, name: bytes) -> list[bytes]:
        """All values of a header, one per field line."""
        if len(self._values) == len(self.headers):
            return [self._values[name]] if name in self._values else []
        return [value for found, value in self.headers if found == name]

    def header(self, name: bytes) -> bytes:
        """The value of a header, its lines joined as RFC 9110 joins them; empty if it is absent."""
        if len(self._values) == len(self.headers):
            return self._values.get(name, b"")
        return b", ".join(self.lines(name))

    def has(self, name: bytes) -> bool:
        """Whether there is such a header."""
        return name in self._values


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
