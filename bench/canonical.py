"""What it costs to tell whether two bodies are the same request."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.pieces import Note, Piece, Table, number
from bench.rounds import turns
from bench.sections import Bench
from bench.traffic import BODY
from oncekey.core import jcs
from oncekey.core.fingerprint import Fingerprinter, Parts

LIMIT = 1 << 20


def _sorted(body: bytes) -> bytes:
    """What one would write by hand: right for no number beyond 2^53 and no key beyond the BMP."""
    return json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()


def _package(body: bytes) -> bytes:
    import rfc8785

    return rfc8785.dumps(json.loads(body))


FINGERPRINTER = Fingerprinter()
WAYS: dict[str, Callable[[bytes], Any]] = {
    "sha256 of the raw bytes": lambda body: hashlib.sha256(body).digest(),
    "OnceKey: canonical form": lambda body: jcs.canonical(body, LIMIT),
    "OnceKey: whole fingerprint": lambda body: FINGERPRINTER.encoded(
        Parts("POST", "/pay", b"", b"application/json", body)
    ),
    "json.dumps(sort_keys=True)": _sorted,
    "rfc8785": _package,
}


def bodies() -> dict[str, bytes]:
    """A payment, an order with many lines, and a large batch."""
    chance = random.Random("bodies")

    def line(number_: int) -> dict[str, Any]:
        price = round(chance.uniform(0.1, 900), 2)
        return {"sku": f"sku-{number_:05}", "price": price, "count": chance.randint(1, 9), "note": 'grün & "gut"'}

    made = {"payment": BODY}
    for name, count in (("order", 20), ("batch", 400)):
        document = {"customer": {"id": "cus_1234", "zip": "01234"}, "lines": list(map(line, range(count))), "at": 1.5}
        made[name] = json.dumps(document).encode()
    return made


def measure(bench: Bench) -> dict[str, Any]:
    """Medians over rounds, microseconds for one body."""
    found: dict[str, Any] = {}
    for name, body in bodies().items():
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for number_, ways in turns(list(WAYS), bench.rounds):
            bench.progress(number_ / bench.rounds, name)
            for way in ways:
                times[way].append(_cost(WAYS[way], body, max(5, 400_000 // len(body))))
        found[name] = {"bytes": len(body), "us": {way: statistics.median(each) for way, each in times.items()}}
    return found


def _cost(way: Callable[[bytes], Any], body: bytes, count: int) -> float:
    began = time.process_time()
    for _ in range(count):
        way(body)
    return (time.process_time() - began) * 1e6 / count


def show(found: dict[str, Any]) -> list[Piece]:
    """One table."""
    head = ("us of CPU", *(f"{name}, {row['bytes']:,} bytes" for name, row in found.items()))
    rows = [(way, *(number(row["us"][way]) for row in found.values())) for way in WAYS]
    said = (
        "`json.dumps(sort_keys=True)` is no canonical form: it writes 1.0 and 1 apart, and other languages write other "
        "numbers. It stands here because it is what one finds in code by hand."
    )
    return [Table("One body", head, rows), Note(said)]
