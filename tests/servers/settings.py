"""How OnceKey is installed in the applications under test."""

from __future__ import annotations

import os
from typing import Any

from oncekey import Policy, by_header
from oncekey.core.keys import endpoint_of, scope_of

CALLER = "Bearer alice"
MAX_KEPT, MAX_BODY = 100_000, 500_000
PIECE, PIECES = b"p" * 32_768, 8
STORE, LEASE = "ONCEKEY_TEST_STORE", "ONCEKEY_TEST_LEASE"


def installed() -> dict[str, Any]:
    """The options, from the environment that the test gave to the server."""
    policy = Policy(lease_for=float(os.environ[LEASE]), max_kept=MAX_KEPT, max_body=MAX_BODY)
    return {"store": os.environ[STORE], "scope": by_header("Authorization"), "policy": policy}


def record_id(path: str, key: str) -> bytes:
    """Where the record of a request is kept."""
    return scope_of(CALLER, endpoint_of("POST", path))[0].record_id(key)
