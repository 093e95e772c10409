"""How commands name one operation, and open what is kept of it."""

from __future__ import annotations

import argparse
import os
import sys

from oncekey import operations
from oncekey.core.record import Seen
from oncekey.engine.sealing import VARIABLE, Sealer
from oncekey.errors import ConfigurationError
from oncekey.stores.contract import Store

Given = argparse.Namespace


class NotFound(Exception):
    """What was asked for is not in the store; the message says where else to look."""


def named(store: Store, given: Given) -> Seen:
    """The operation that a command names."""
    return _by_key(store, given) if given.key else _by_reference(store, given)


def ring() -> Sealer:
    """What opens and seals answers, as the environment says."""
    return Sealer.from_text(os.environ.get(VARIABLE, ""))


def _by_key(store: Store, given: Given) -> Seen:
    caller = sys.stdin.readline().rstrip("\r\n") if given.caller == "-" else given.caller
    if not caller:
        raise ConfigurationError("the caller is empty: write what the scope returns for it, such as a header's value")
    seen = store.get(operations.id_of(given.key, caller, given.endpoint))
    if seen is None:
        where = f"at {given.endpoint!r}" if given.endpoint else "without an endpoint"
        raise NotFound(
            f"no operation under this key for this caller {where}: --caller is what the scope returns, for by_header "
            f"the header's whole value; --endpoint must be given, unless the dialect counts it into the fingerprint"
        )
    return seen


def _by_reference(store: Store, given: Given) -> Seen:
    found = operations.find(store, given.id, finished=given.finished)
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(seen.record.id.hex() for seen in found)
        raise NotFound(f"{given.id} is the beginning of several operations: {ids}")
    whole = given.finished or len(given.id) >= operations.ID_DIGITS
    hint = "it may have expired" if whole else "if it has finished, add --finished or give the whole id"
    raise NotFound(f"no operation {given.id}: {hint}")
