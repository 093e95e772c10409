"""Who may enter, and whether a form was sent from a page of ours. Closed until somebody says who.

Forms are held to two rules. The browser must say that the form came from this very origin, by Sec-Fetch-Site or else
by Origin. And it must carry the value of a cookie that only our own pages could know. Neither needs memory, so that any
worker may answer.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from oncekey.console.web import Ask, Refused, Scope, cookie
from oncekey.errors import ConfigurationError
from oncekey.operations import Signature

log = logging.getLogger("oncekey.audit")

# Given the ASGI scope of a request: the operator's name, or None to refuse.
Operator = Callable[[Scope], "str | Awaitable[str | None] | None"]

SESSION_FOR = 12 * 3600
# A token that is shorter could be found by trying.
LEAST = 16
MAKE_ONE = "python -c 'import secrets; print(secrets.token_urlsafe(24))'"
SAFE = ("GET", "HEAD")


class Access:
    """The door of one console."""

    def __init__(self, token: str | None, operator: Operator | None) -> None:
        if (token is None) == (operator is None):
            raise ConfigurationError(_CLOSED if token is None else _BOTH)
        if token is not None:
            checked_token(token)
        if operator is not None and not callable(operator):
            raise ConfigurationError(f"operator={operator!r} is no function of a request's scope: {_CLOSED}")
        self._token = token
        self._operator = operator
        self._secret = hashlib.sha256(b"oncekey console session 1" + (token or "").encode()).digest()
        # Consoles on other ports of the same host share its cookies.
        mark = hashlib.sha256(self._secret).hexdigest()[:8]
        self.session, self.paired = f"oncekey_session_{mark}", f"oncekey_form_{mark}"

    @property
    def signs_in(self) -> bool:
        """Whether people sign in here, with the token."""
        return self._token is not None

    async def who(self, ask: Ask) -> str | None:
        """The operator's name; None: nobody has signed in. Refused: somebody has, who may not enter."""
        if self._operator is None:
            return self._read(ask.cookies.get(self.session, ""))
        name: Any = self._operator(ask.scope)
        if inspect.isawaitable(name):
            name = await name
        if not isinstance(name, str) or not name.strip():
            raise Refused(403, "This is not for you", "The application does not count you among its operators.")
        return _named(name)

    def sign_in(self, ask: Ask) -> tuple[bytes, bytes]:
        """The cookie of a session. Refused: the token or the name is wrong."""
        given = ask.form.get("token", "").strip()
        if not hmac.compare_digest(given.encode(), (self._token or "").encode()):
            log.warning("somebody tried to enter the console with a wrong token")
            raise Refused(401, "That is not the token", "Copy it from where the console was started.")
        try:
            name = _named(ask.form.get("name", ""))
            Signature(name, "signing in").checked()
        except ConfigurationError:
            raise Refused(422, "Your name is missing", "Write a name: what you change is signed with it.") from None
        log.info("%s has signed in to the console", name)
        said = json.dumps([name, int(time.time()) + SESSION_FOR]).encode()
        value = f"{_plain(said)}.{_plain(self._mac(said))}"
        return cookie(ask, self.session, value, lasts_for=SESSION_FOR)

    def sign_out(self, ask: Ask) -> tuple[bytes, bytes]:
        """The end of a session."""
        return cookie(ask, self.session, "", lasts_for=0)

    def _read(self, value: str) -> str | None:
        said, _, mac = value.partition(".")
        try:
            data, given = _bytes(said), _bytes(mac)
        except ValueError:
            return None
        if not hmac.compare_digest(given, self._mac(data)):
            return None
        name, until = json.loads(data)
        return str(name) if until > time.time() else None

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, "sha256")

    # ---- forms ---------------------------------------------------------------------------------------------------

    def pair(self, ask: Ask) -> tuple[str, tuple[tuple[bytes, bytes], ...]]:
        """What forms of this browser carry, and the cookie that says the same if it has none yet."""
        value = ask.cookies.get(self.paired, "")
        if len(value) >= LEAST and value.isascii() and value.replace("-", "").replace("_", "").isalnum():
            return value, ()
        value = secrets.token_urlsafe(24)
        return value, (cookie(ask, self.paired, value),)

    def check_form(self, ask: Ask) -> None:
        """Refuse a form that was not sent from a page of ours."""
        if not same_origin(ask):
            raise Refused(
                403,
                "This form came from elsewhere",
                "Nothing was done. Open the console itself and send it from there. If you did, the proxy in front "
                "changes the Host header: let it pass that on.",
            )
        known, given = ask.cookies.get(self.paired, ""), ask.form.get("form", "")
        if len(known) < LEAST or not hmac.compare_digest(known.encode(), given.encode()):
            raise Refused(
                403,
                "This form has lost its pair",
                "Nothing was done. Cookies must be on: go back, reload, and send it again.",
            )


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(18)


def checked_token(token: str) -> str:
    """The token; refused if it could be guessed."""
    if not isinstance(token, str) or len(token) < LEAST:
        raise ConfigurationError(
            f"the console's token is too short to be safe: give one of {LEAST} characters or more, made by {MAKE_ONE}"
        )
    return token


def same_origin(ask: Ask) -> bool:
    """Whether the browser says that a request came from a page of this origin."""
    site = ask.header(b"sec-fetch-site")
    if site:
        return site == "same-origin"
    origin, host = ask.header(b"origin"), ask.header(b"host")
    return bool(host) and urlsplit(origin).netloc.lower() == host.lower()


def _named(name: str) -> str:
    return " ".join(name.split())[:100]


def _plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))


_CLOSED = (
    "the console stays closed until you say who may enter: write token=os.environ['ONCEKEY_CONSOLE_TOKEN'] for a token "
    "of its own, or operator=lambda scope: scope['user'].display_name for the application's own login, which returns "
    "the operator's name, or None to refuse"
)
_BOTH = (
    "the console was given a token and an operator: write token= for a sign-in of its own, or operator= for the "
    "application's login"
)
