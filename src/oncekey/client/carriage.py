"""Where the key travels: a header, bare or quoted, or a member of a JSON body, as the server's dialect wants it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from oncekey.errors import ConfigurationError
from oncekey.http.dialects import dialect

_ESCAPED = re.compile(r'\\(["\\])')


@dataclass(frozen=True, slots=True)
class Carriage:
    """How requests to one server carry their keys. With `member` the body carries it, and `header` is not used."""

    header: str = "Idempotency-Key"
    member: str = ""
    quoted: bool = False
    methods: frozenset[str] = frozenset({"POST", "PATCH"})
    first_sent: bool = False  # say with each request when the operation was first sent

    def __post_init__(self) -> None:
        if not self.header and not self.member:
            raise ConfigurationError("a key needs a place to travel in: write header='Idempotency-Key'")

    def written(self, key: str) -> str:
        """The key as it stands on the wire."""
        if not self.quoted:
            return key
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    def read(self, text: str) -> str:
        """The key behind what stands on the wire."""
        if self.quoted and text[:1] == text[-1:] == '"' and len(text) > 1:
            return _ESCAPED.sub(r"\1", text[1:-1])
        return text

    def key_in(self, body: bytes) -> str:
        """The key that a JSON body already carries, or an empty text."""
        found = self._object(body).get(self.member, "")
        return found if isinstance(found, str) else ""

    def key_into(self, body: bytes, key: str) -> bytes:
        """The same JSON object, with the key in it."""
        return json.dumps(self._object(body) | {self.member: key}, ensure_ascii=False, separators=(",", ":")).encode()

    def key_out_of(self, body: bytes) -> bytes:
        """The same JSON object, without the key."""
        members = {name: value for name, value in self._object(body).items() if name != self.member}
        return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()

    def _object(self, body: bytes) -> dict[str, object]:
        try:
            found = json.loads(body or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConfigurationError(
                f"the key travels in the member {self.member!r}, and this body is no JSON object: send an object, or "
                "name a header instead: Carriage(header='Idempotency-Key')"
            )
        return found


def carriage(name: str, *, quoted: bool = False, methods: Iterable[str] | None = None) -> Carriage:
    """Return what the servers of a dialect expect, such as `carriage("paypal")` or `carriage("ietf", quoted=True)`."""
    spoken = dialect(name)
    return Carriage(
        header=spoken.header or "",
        member=spoken.members[0] if spoken.members else "",
        quoted=quoted,
        methods=frozenset(methods or spoken.methods),
        first_sent=name == "ietf",
    )
