"""What the store's URL says: where the server is, and our own options, which the client library must not see.

oncekey_table=oncekey_records   the table, with its schema if it is not on the search path
oncekey_pool=4                  connections at most, for each process (each event loop)
oncekey_pooler=auto             whether PgBouncer or the like stands before the server: auto, yes or no
oncekey_listen=host:5432        the server's own address for LISTEN, which a pooler does not pass on
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from oncekey.errors import ConfigurationError

EXAMPLE = "postgresql://user:password@host:5432/database"
TABLE = "oncekey_records"
POOLS = range(1, 65)
_PREFIX = "oncekey_"
# 40 characters leave room for the names of indexes within the server's 63.
_NAME = re.compile(r"(?:[a-z_][a-z0-9_]{0,39}\.)?[a-z_][a-z0-9_]{0,39}")


class Options(NamedTuple):
    """One store's address and options; `shown` may be printed: it has no password."""

    conninfo: str
    shown: str
    table: str
    lanes: int
    pooler: str
    store_for: float
    listen_conninfo: str

    @property
    def channel(self) -> str:
        """Where listeners are told: named after the table, in a form that needs no quoting of its parts."""
        return self.table.replace(".", "/")

    @property
    def migrate_command(self) -> str:
        """What to run when tables are missing."""
        return f"oncekey migrate --store '{self.shown}'"


def read_options(url: str, store_for: float) -> Options:
    """Split a URL into the client library's part and ours; refuse what neither knows."""
    address, _, query = url.partition("?")
    items = [item for item in query.split("&") if item]
    ours = dict(parse_qsl("&".join(i for i in items if i.startswith(_PREFIX)), keep_blank_values=True))
    theirs = "&".join(item for item in items if not item.startswith(_PREFIX))
    conninfo, shown = _address(f"{address}?{theirs}" if theirs else address)
    kept = "&".join(f"{name}={quote(value)}" for name, value in sorted(ours.items()))
    options = Options(
        conninfo=conninfo,
        shown=f"{shown}?{kept}" if kept else shown,
        table=_table(ours.pop("oncekey_table", TABLE)),
        lanes=_lanes(ours.pop("oncekey_pool", "4")),
        pooler=_pooler(ours.pop("oncekey_pooler", "auto")),
        store_for=store_for,
        listen_conninfo=_listening(conninfo, ours.pop("oncekey_listen", None)),
    )
    if ours:
        known = "oncekey_table, oncekey_pool, oncekey_pooler, oncekey_listen"
        raise ConfigurationError(f"{', '.join(sorted(ours))} is not an option of this store: it knows {known}")
    return options


def _address(url: str) -> tuple[str, str]:
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        # Not chained: the library's message repeats parts of the URL, perhaps the password.
        raise ConfigurationError(f"the store's URL cannot be read: write it like {EXAMPLE}") from None
    parts.setdefault("application_name", "oncekey")
    if "," in str(parts.get("host", "")):
        # Of several servers only one takes writes.
        parts.setdefault("target_session_attrs", "read-write")
    user = f"{quote(str(parts['user']), safe='')}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    shown = f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"
    return make_conninfo("", **parts), shown


def _listening(conninfo: str, place: str | None) -> str:
    if place is None:
        return conninfo
    host, colon, port = place.rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ConfigurationError(f"oncekey_listen={place!r} is not an address: write host:port, for example db1:5432")
    return make_conninfo(conninfo, host=host.strip("[]"), port=port)


def _table(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"oncekey_table={unquote(name)!r} is not a table's name: write up to 40 small letters, digits and "
            f"underscores, with a schema before a dot if need be; left out, it is {TABLE}"
        )
    return name


def _lanes(number: str) -> int:
    if not number.isdecimal() or int(number) not in POOLS:
        raise ConfigurationError(
            f"oncekey_pool={number!r} makes no sense: write a number of connections from {POOLS[0]} to {POOLS[-1]}"
        )
    return int(number)


def _pooler(word: str) -> str:
    if word not in {"auto", "yes", "no"}:
        raise ConfigurationError(
            f"oncekey_pooler={word!r} is not known: write auto, yes (PgBouncer or the like) or no; left out, it is auto"
        )
    return word
