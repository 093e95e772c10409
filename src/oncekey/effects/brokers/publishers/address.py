"""What all broker addresses have in common: shown without secrets, and options that are checked."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from urllib.parse import parse_qsl, unquote, urlsplit

from oncekey.errors import ConfigurationError


def shown(url: str) -> str:
    """Scheme, host and port alone: users, passwords, paths and options may be secrets."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def options(url: str, known: Collection[str]) -> dict[str, str]:
    """What stands behind the question mark; a name that nobody knows is refused."""
    found = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            there = f"there are {', '.join(sorted(known))}" if known else "there are none"
            meant = f"did you mean {near[0]}=?" if near else there
            raise ConfigurationError(f"the broker's address has an unknown option {name}=; {meant}")
    return found


def number(text: str, name: str) -> int:
    """A whole number above 0 of an option."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigurationError(f"{name}= in the broker's address is a whole number above 0")
    return int(text)


def path(url: str) -> str:
    """What stands behind the host, without its slashes."""
    return unquote(urlsplit(url).path.strip("/"))


def plain(error: BaseException) -> str:
    """An error's first line, or its name."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
