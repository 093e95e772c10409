from __future__ import annotations

import os

from oncekey import SHARED
from oncekey.http.exchange import Exchange
from oncekey.http.gate import Gate
from oncekey.http.messages import Request

CHILDREN, TOKENS = 32, 1000


def _tokens(gate: Gate) -> list[bytes]:
    made = []
    for _ in range(TOKENS):
        exchange = gate.prepare(Request("POST", "/pay", b"", [], b"{}"), "key")
        assert isinstance(exchange, Exchange)
        made.append(exchange.claim.token)
    return made


def test_tokens_differ_in_all_forked_children() -> None:
    """Owner tokens come from the system: a generator that was seeded before the fork would repeat itself."""
    gate = Gate(scope=SHARED)
    seen = set(_tokens(gate))
    for _ in range(CHILDREN):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            with os.fdopen(writing, "wb") as end:
                end.write(b"".join(_tokens(gate)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as end:
            sent = end.read()
        os.waitpid(child, 0)
        seen.update(sent[at : at + 16] for at in range(0, len(sent), 16))
    assert len(seen) == (CHILDREN + 1) * TOKENS
