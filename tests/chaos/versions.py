"""Versions of the records, for rolling restarts: version 1 is the package as it is, the others may come after it.

`write` makes a version of this process, from outside of the package: whatever it writes is marked as of a format that
older ones do not know, and it reads theirs. So while workers are renewed one by one, the older ones meet records that
they must refuse: never take for absent, never run again, never change, and never let stand in the way of others.
"""

from __future__ import annotations

import hashlib
import re
import sys
from typing import Any

from oncekey.core.record import FORMAT
from oncekey.stores.postgres import plan as postgres
from oncekey.stores.redis import commands, layout
from oncekey.stores.sqlite import plan as sqlite
from oncekey.stores.sqlite.statements import STATEMENTS

# In Redis a record's first byte is its layout, 1 to 3; those of each version are so much more.
SHIFT = 4
MOST = 255 // SHIFT
# Reads what all others have written, and writes what all of them can read.
EVERYBODYS = 0


def write(version: int) -> None:
    """Be of this version from now on."""
    if version != 1:
        reads, writes = (MOST, 1) if version == EVERYBODYS else (version, version)
        _sqlite(reads, writes)
        _postgres(reads, writes)
        _redis(reads, writes)


def _replaced(text: str, old: str, new: str) -> str:
    """A change that must find its place: where the package was changed, this has to follow."""
    if old not in text:
        raise AssertionError(f"{old!r} is not there any more: mend tests/chaos/versions.py")
    return text.replace(old, new)


def _known(row: Any, at: int, reads: int) -> Any:
    """A row as version 1 would have it."""
    return (*row[:at], FORMAT, *row[at + 1 :]) if 0 < row[at] <= reads else row


def _sqlite(reads: int, writes: int) -> None:
    for name, sql in STATEMENTS.items():
        # The indexes that the hints name are those of version 1; a real next version would bring its own.
        free = re.sub(r" INDEXED BY (?!oncekey_foreign)\w+", "", sql)
        STATEMENTS[name] = free.replace("format = 1", f"format BETWEEN 1 AND {reads}")
    STATEMENTS["claim"] = _replaced(STATEMENTS["claim"], "VALUES (?, 1,", f"VALUES (?, {writes},")
    STATEMENTS["swap"] = _replaced(STATEMENTS["swap"], "SET state = ?", f"SET format = {writes}, state = ?")
    read = sqlite.read
    sqlite.read = lambda row: read(_known(row, 1, reads))


def _postgres(reads: int, writes: int) -> None:
    statements: Any = sys.modules["oncekey.stores.postgres.statements"]  # the package has a function of this name
    words, seen = statements._words, postgres.seen
    own = {"format": str(writes), "formats": ", ".join(map(str, range(1, reads + 1)))}
    statements._words = lambda table: {**words(table), **own}
    postgres.seen = lambda row: seen(_known(row, 2, reads))


def _redis(reads: int, writes: int) -> None:
    for name in ("CLAIM", "SETTLE", "RENEW", "SWAP", "LOOK", "WATCH", "FORGET"):
        setattr(commands, name, _script(getattr(commands, name), reads, (writes - 1) * SHIFT))
    encode, encode_claim, decode = layout.encode, layout.encode_claim, layout.decode
    layout.encode = lambda record: _marked(encode(record), writes)
    layout.encode_claim = lambda claim: _marked(encode_claim(claim), writes)
    layout.decode = lambda id_, card: decode(id_, _unmarked(card, reads))


def _script(script: commands.Script, reads: int, more: int) -> commands.Script:
    """The script as it reads all layouts up to ours, and writes ours."""
    text = _replaced(script.text, "SMALL_EXPIRED = 1, 2, 3", f"SMALL_EXPIRED = {1 + more}, {2 + more}, {3 + more}")
    known = f"byte(%s, 1) <= {reads * SHIFT} and byte(%s, 1) % {SHIFT} == %d"
    text = _replaced(text, "byte(record, 1) == OPEN", _filled(known, "record", layout.OPEN))
    small = f"layout <= {reads * SHIFT} and (layout % {SHIFT} == 2 or layout % {SHIFT} == 3)"
    text = text.replace("(layout == SMALL or layout == SMALL_EXPIRED)", f"({small})")
    for name in ("old", "found"):
        text = text.replace(f"byte({name}, 1) == SMALL", _filled(known, name, layout.COMPLETED))
    return commands.Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _filled(known: str, name: str, kind: int) -> str:
    return "(" + known.replace("%s", name).replace("%d", str(kind)) + ")"


def _marked(record: bytes, writes: int) -> bytes:
    return bytes((record[0] + (writes - 1) * SHIFT,)) + record[1:]


def _unmarked(card: bytes, reads: int) -> bytes:
    at = layout.CARD
    if len(card) > at and card[at] % SHIFT and card[at] < reads * SHIFT:
        return card[:at] + bytes((card[at] % SHIFT,)) + card[at + 1 :]
    return card
