"""Conditions on a resource (RFC 9110, 13.1): If-Match for changes that must not undo somebody else's, 412 and 428.

    unmet = if_match(request.headers.get("If-Match"), etag(row.version))
    if unmet is not None:
        return JSONResponse(unmet.problem, unmet.status)

Ask inside of your handler: there the key has been looked at already, and a retry of a change that succeeded is given
its first answer, and not 412 because of its own success.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from oncekey.errors import ConfigurationError, Declined

ANY: Final = "*"
# An entity-tag: its characters are all that are visible, without the quote, and bytes above ASCII.
_TAG: Final = re.compile(r'(W/)?"([!#-~\x80-\U0010ffff]*)"')
_COMMA: Final = re.compile(r"[ \t]*,[ \t,]*")
MEDIA: Final = "application/problem+json"


class Unmet(NamedTuple):
    """Why a request may not be carried out: 412 (the condition is false), 428 (there is none), or 400."""

    status: int
    title: str
    detail: str

    @property
    def problem(self) -> dict[str, Any]:
        """The body of the answer, as RFC 9457 has it."""
        return {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}

    def declined(self) -> Declined:
        """To raise: an answer that is final, kept and replayed, and for which nothing is written."""
        return Declined(self.problem, self.status, {"content-type": MEDIA})


def etag(value: int | str | bytes) -> str:
    """A strong entity-tag: of a version number, or of the bytes or the text of a representation."""
    if isinstance(value, bool) or not isinstance(value, int | str | bytes):
        raise ConfigurationError(f"etag({value!r}): give a version number, or the representation as bytes or text")
    if isinstance(value, int):
        return f'"{value}"'
    digest = hashlib.sha256(value.encode() if isinstance(value, str) else value).digest()
    return f'"{base64.urlsafe_b64encode(digest[:16]).rstrip(b"=").decode()}"'


def if_match(header: str | None, current: str | None, *, required: bool = True) -> Unmet | None:
    """Whether a change may be made to what has the tag `current` (None: there is nothing). None: it may.

    Tags are compared strongly: a weak one (W/"...") never matches.
    """
    if header is None:
        return UNCONDITIONAL if required else None
    tags = _tags(header)
    if tags is None:
        return _malformed("If-Match")
    met = current is not None if tags == ANY else current in tags and not _is_weak(current)
    return None if met else CHANGED


def if_none_match(header: str | None, current: str | None) -> Unmet | None:
    """Whether something may be made where `current` is (None: nothing is there). `*`: only if there is nothing."""
    tags = _tags(header) if header is not None else ()
    if tags is None:
        return _malformed("If-None-Match")
    if current is None:
        return None
    met = tags != ANY and _opaque(current) not in map(_opaque, tags)
    return None if met else EXISTS


def conditional(
    *, current: Callable[..., Any], header: Callable[..., str | None], required: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a handler: it runs if its If-Match is true, and raises Declined (412, 428) otherwise.

    `current` gives the resource's tag and `header` the request's field, both of what the handler is called with; where
    the handler is awaited, `current` may be too. Read what `current` reads in the transaction that the handler writes.
    """

    def guard(handler: Callable[..., Any]) -> Callable[..., Any]:
        def check(tag: str | None, args: Any, kwargs: Any) -> None:
            unmet = if_match(header(*args, **kwargs), tag, required=required)
            if unmet is not None:
                raise unmet.declined()

        if inspect.iscoroutinefunction(handler):

            @functools.wraps(handler)
            async def handled(*args: Any, **kwargs: Any) -> Any:
                tag = current(*args, **kwargs)
                check(await tag if isinstance(tag, Awaitable) else tag, args, kwargs)
                return await handler(*args, **kwargs)

        else:

            @functools.wraps(handler)
            def handled(*args: Any, **kwargs: Any) -> Any:
                check(current(*args, **kwargs), args, kwargs)
                return handler(*args, **kwargs)

        return handled

    return guard


UNCONDITIONAL: Final = Unmet(
    428, "Precondition Required", "Say which version you have seen: send If-Match with the ETag that you were given."
)
CHANGED: Final = Unmet(
    412,
    "Precondition Failed",
    "The resource is not what you have seen. Read it again, and decide anew under a new key.",
)
EXISTS: Final = Unmet(412, "Precondition Failed", "There is something already. Read it before you decide what to do.")


def _malformed(name: str) -> Unmet:
    return Unmet(
        400, "Bad Request", f'{name} is no list of entity-tags: write {name}: "..." with its quotes, or {name}: *'
    )


def _tags(header: str) -> tuple[str, ...] | str | None:
    """The tags of a field, `*`, or None if it is neither."""
    text = header.strip(" \t")
    if text == ANY:
        return ANY
    found, at = [], 0
    text = text.strip(" \t,")
    while at < len(text):
        tag = _TAG.match(text, at)
        if tag is None:
            return None
        found.append(tag[0])
        comma = _COMMA.match(text, tag.end())
        if comma is None and tag.end() < len(text):
            return None
        at = comma.end() if comma is not None else tag.end()
    return tuple(found) or None


def _is_weak(tag: str | None) -> bool:
    return tag is None or tag.startswith("W/")


def _opaque(tag: str) -> str:
    return tag.removeprefix("W/")
