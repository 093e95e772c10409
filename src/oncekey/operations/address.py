"""Store addresses that may be shown: no password, wherever in a URL it stands."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

MASK = "***"
# The greedy part reaches to the last @, so that a password with an unescaped @ or / in it is covered to its end.
_IN_FRONT = re.compile(r"^([^:/?#]+://[^:@/?#]*):(.*)@", re.DOTALL)
_IN_QUERY = re.compile(r"([?&;][^=&;#]*(?:pass|pwd|secret|token)[^=&;#]*=)([^&;#]*)", re.IGNORECASE)
# Shorter ones would be found in ordinary words; whole addresses are replaced first anyway.
_LEAST = 4


def masked(url: str) -> str:
    """The address with its passwords replaced."""
    if not _has_login(url):
        return url
    return _IN_QUERY.sub(rf"\1{MASK}", _IN_FRONT.sub(rf"\1:{MASK}@", url))


def scrubbed(text: str, url: str) -> str:
    """A message without the address's passwords: drivers repeat what they were given, in part or whole."""
    text = text.replace(url, masked(url)) if url else text
    for secret in _secrets(url):
        for form in {secret, unquote(secret)}:
            if len(form) >= _LEAST:
                text = text.replace(form, MASK)
            text = text.replace(f":{form}@", f":{MASK}@")
    return text


def _has_login(url: str) -> bool:
    # In the path of a file both : and @ are ordinary letters.
    return not url.startswith(("sqlite:", "memory:"))


def _secrets(url: str) -> list[str]:
    if not _has_login(url):
        return []
    found = [match[2] for match in (_IN_FRONT.match(url),) if match]
    found += [value for _, value in _IN_QUERY.findall(url)]
    try:
        found.append(urlsplit(url).password or "")
    except ValueError:
        pass
    return [secret for secret in found if secret]
