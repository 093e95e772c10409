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
    values: dict[bytes, bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.values = values = dict(self.headers)
        if values and not b"".join(values).islower():
            self.headers = [(name.lower(), value) for name, value in self.headers]
            self.values = dict(self.headers)

    def lines(self, name: bytes) -> list[bytes]:
        """All values of a header, one per field line."""
        values = self.values
        if name not in values:
            return []
        if len(values) == len(self.headers):
            return [values[name]]
        return [value for found, value in self.headers if found == name]

    def header(self, name: bytes) -> bytes:
        """The value of a header, its lines joined as RFC 9110 joins them; empty if it is absent."""
        if len(self.values) == len(self.headers):
            return self.values.get(name, b"")
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
