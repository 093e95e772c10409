"""A store= address for Redis: redis://user:password@host:6379/0?prefix=shop, or rediss, valkey, valkeys."""

from __future__ import annotations

import difflib
import re
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from oncekey.errors import ConfigurationError

PREFIX = "ok"
CONNECTIONS = 32
PORT = 6379

_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BOOLEANS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
OPTIONS = ("prefix", "connections", "scopes")
SCOPES = ("forget", "keep")
TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_CERT_REQS = ("required", "optional", "none")


class Address(NamedTuple):
    """Where the server is, and how we use it. `arguments` are those of redis-py's connections."""

    where: str
    tls: bool
    arguments: dict[str, Any]
    prefix: str
    connections: int
    scopes: bool = False


def parse(url: str, store_for: float) -> Address:
    """Read the address; what is wrong in it is said without showing it: it may hold a password."""
    parts = urlsplit(url)
    tls = parts.scheme.lower() in ("rediss", "valkeys")
    options = _options(parts.query, tls=tls)
    host, port = unquote(parts.hostname or "localhost"), parts.port or PORT
    arguments: dict[str, Any] = {
        "host": host,
        "port": port,
        "db": _database(parts.path),
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
        "socket_connect_timeout": store_for,
        "socket_keepalive": True,
        "protocol": 2,
    }
    arguments |= {name: _tls(name, options[name]) for name in TLS_OPTIONS if name in options}
    prefix = options.get("prefix", PREFIX)
    if not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(
            "prefix= in the store address holds 1 to 64 letters, digits, dots, hyphens and underscores: "
            "write prefix=shop, for example"
        )
    scopes = options.get("scopes", SCOPES[0])
    if scopes not in SCOPES:
        raise ConfigurationError("scopes= in the store address is forget (the default) or keep: write scopes=keep")
    connections = _connections(options.get("connections"))
    return Address(f"{host}:{port}", tls, arguments, prefix, connections, scopes == "keep")


def _options(query: str, *, tls: bool) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    known = OPTIONS + (TLS_OPTIONS if tls else ())
    for name in options:
        if name in known:
            continue
        if name in TLS_OPTIONS:
            raise ConfigurationError(f"{name}= needs TLS: write rediss:// instead of redis://")
        near = difflib.get_close_matches(name, known, n=1)
        meant = f"did you mean {near[0]}=?" if near else f"there are {', '.join(known)}."
        raise ConfigurationError(f"the store address has an unknown option {name}=; {meant}")
    return options


def _database(path: str) -> int:
    number = path.strip("/")
    if number and not (number.isascii() and number.isdigit()):
        raise ConfigurationError(
            "what follows the host in the store address is a database number: write redis://host:6379/0"
        )
    return int(number or 0)


def _connections(text: str | None) -> int:
    if text is None:
        return CONNECTIONS
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigurationError(
            f"connections= in the store address is a number above 0: write connections={CONNECTIONS}"
        )
    return int(text)


def _tls(name: str, value: str) -> str | bool:
    if name == "ssl_check_hostname":
        if value.lower() not in _BOOLEANS:
            raise ConfigurationError("ssl_check_hostname= in the store address is yes or no")
        return _BOOLEANS[value.lower()]
    if name == "ssl_cert_reqs" and value not in _CERT_REQS:
        raise ConfigurationError(f"ssl_cert_reqs= in the store address is one of {', '.join(_CERT_REQS)}")
    return value
