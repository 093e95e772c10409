"""What a page needs of HTTP: a request with its fields and cookies, an answer with headers that allow little."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# An answer of a megabyte, pasted into a form, with its signs escaped.
LARGEST = 4 << 20
# More fields than any form of ours has.
FIELDS = 50
HTML = b"text/html; charset=utf-8"

# Nothing but our own style sheet and script, no frame around us, no copy in a cache. `same-origin` and not
# `no-referrer`: with that, browsers would hide from us where a form came from (see access.same_origin).
POLICY = (
    b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
NO_STORE = (b"cache-control", b"no-store")
PLAIN = ((b"content-type", HTML), NO_STORE)
Cookies = tuple[tuple[bytes, bytes], ...]


class Answered(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = PLAIN


class Refused(Exception):
    """What is told instead of the page: a status, a title and what to do next."""

    def __init__(self, status: int, title: str, advice: str, *more: tuple[bytes, bytes]) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.advice = advice
        self.more = more


class Ask:
    """One request. `place` is the path below the console; `form` is empty until it is read."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
        self.root = root
        self.whole = path
        # Servers differ in whether the path has the root in it.
        self.place = path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path
        self.form: dict[str, str] = {}
        self.cookies = _cookies(b"; ".join(self.lines(b"cookie")))

    @functools.cached_property
    def query(self) -> dict[str, str]:
        """What stands behind the question mark."""
        return _first(self.scope.get("query_string", b"").decode("latin-1"))

    def lines(self, name: bytes) -> list[bytes]:
        """All values of a header."""
        return [value for found, value in self.scope["headers"] if found.lower() == name]

    def header(self, name: bytes) -> str:
        """The value of a header, or nothing."""
        return b", ".join(self.lines(name)).decode("latin-1")

    @property
    def up(self) -> str:
        """From this page to the start of the console: links are relative, so that any proxy may stand in front."""
        return "../" * (self.place.count("/") - 1) or "./"

    @property
    def secure(self) -> bool:
        """Whether the browser speaks TLS with us, as far as the server knows."""
        return bool(self.scope.get("scheme") == "https")

    async def read(self, receive: Receive) -> bool:
        """Read the form; whether it came whole. Refused: it is too large, or no form."""
        pieces, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return False
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > LARGEST:
                raise Refused(
                    413,
                    "That is too much",
                    f"A form may have {LARGEST:,} bytes. Settle it with the command "
                    "line, which reads files: oncekey resolve --completed FILE.",
                )
            if not message.get("more_body", False):
                break
        if not self.header(b"content-type").lower().startswith("application/x-www-form-urlencoded"):
            raise Refused(415, "That was no form", "Send it with the console's own forms.")
        self.form = _first(b"".join(pieces).decode("utf-8", "replace"))
        return True


def _first(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS)
    except ValueError:
        raise Refused(400, "That was no form", "Send it with the console's own forms.") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _cookies(line: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in line.decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        found.setdefault(name, value.strip('"'))
    return found


def cookie(ask: Ask, name: str, value: str, *, lasts_for: int | None = None) -> tuple[bytes, bytes]:
    """A cookie for this console alone, which no script sees and no form of another site brings along."""
    words = [f"{name}={value}", f"Path={ask.root}/", "HttpOnly", "SameSite=Lax"]
    if lasts_for is not None:
        words.append(f"Max-Age={lasts_for}")
    if ask.secure:
        words.append("Secure")
    return (b"set-cookie", "; ".join(words).encode("latin-1", "replace"))


def see_other(where: str, *more: tuple[bytes, bytes]) -> Answered:
    """Go there, by GET: what a form is answered with when it is done."""
    return Answered(303, b"", ((b"location", where.encode("ascii")), NO_STORE, *more))


async def send_answer(send: Send, answered: Answered, *, head: bool = False) -> None:
    """Send it, with what every answer of the console has."""
    own: Iterable[tuple[bytes, bytes]] = ((b"content-length", b"%d" % len(answered.body)), *HEADERS)
    headers = [*answered.headers, *own]
    await send({"type": "http.response.start", "status": answered.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else answered.body})


__all__ = ["PLAIN", "Answered", "Ask", "Cookies", "Refused", "cookie", "see_other", "send_answer"]
