"""Store addresses: opened with an operator's care, and shown without passwords."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from oncekey.errors import ConfigurationError, SchemaMissing
from oncekey.stores.contract import Store
from oncekey.stores.open import open_store

MASK = "***"
# The greedy part reaches to the last @, so that a password with an unescaped @ or / in it is covered to its end.
_IN_FRONT = re.compile(r"^([^:/?#]+://[^:@/?#]*):(.*)@", re.DOTALL)
_IN_QUERY = re.compile(r"([?&;][^=&;#]*(?:pass|pwd|secret|token)[^=&;#]*=)([^&;#]*)", re.IGNORECASE)
# Shorter ones would be found within ordinary words; between : and @ even those are replaced.
_LEAST = 4
# Stores on this machine's disk or in its memory: no login, no clock of their own.
_EMBEDDED = ("sqlite:", "memory:")


def opened(url: str, *, store_for: float, create: bool = False, option: str = "--store") -> Store:
    """The store at an address. Unless it may `create`, a file that is not there is refused, for it may be a typo.

    `option` is where the address was written.
    """
    if not url:
        raise ConfigurationError("no store was named: write --store sqlite:///oncekey.db, or set ONCEKEY_STORE")
    store = open_store(url, store_for=store_for)
    if url.startswith("sqlite:") and not create:
        from oncekey.stores.sqlite import path_of  # noqa: PLC0415 - the room is loaded only for its own addresses

        path = path_of(url)
        if not Path(path).exists():
            store.close()
            raise SchemaMissing(
                f"there is no file {path}: correct {option}, or make it with `oncekey migrate --store {url}`"
            )
    return store


def embedded(url: str) -> bool:
    """Whether the store lives on this machine, by this machine's clock."""
    return url.startswith(_EMBEDDED)


def masked(url: str) -> str:
    """The address with its passwords replaced."""
    return _IN_QUERY.sub(rf"\1{MASK}", _IN_FRONT.sub(rf"\1:{MASK}@", url))


def scrubbed(text: str, url: str) -> str:
    """A message without the address's passwords: drivers repeat what they were given, in part or whole."""
    if not url:
        return text
    text = text.replace(url, masked(url))
    for secret in _secrets(url):
        for form in {secret, unquote(secret)}:
            if len(form) >= _LEAST:
                text = text.replace(form, MASK)
            text = text.replace(f":{form}@", f":{MASK}@")
    return text


def _secrets(url: str) -> list[str]:
    found = [match[2] for match in (_IN_FRONT.match(url),) if match]
    found += [value for _, value in _IN_QUERY.findall(url)]
    with suppress(ValueError):
        found.append(urlsplit(url).password or "")
    return sorted(filter(None, found), key=len, reverse=True)
