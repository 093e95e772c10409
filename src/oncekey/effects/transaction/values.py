"""What a block of code leaves for its retries: an answer of HTTP, bytes, or anything that JSON can say."""

from __future__ import annotations

from typing import Any, Final

import orjson

from oncekey.core.outcome import Answer, Tombstone, Value, pack, pack_value, unpack
from oncekey.errors import ConfigurationError, RecordUnreadable

_BYTES: Final = b"\x00"
_JSON: Final = b"\x01"


def packed(value: object) -> bytes:
    """A result as an outcome."""
    if isinstance(value, Answer):
        return pack(*value)
    if isinstance(value, bytes):
        return pack_value(_BYTES + value)
    return pack_value(_JSON + json_of(value, "the result"))


def unpacked(outcome: bytes) -> Any:
    """The result as it was; what JSON wrote as a list was perhaps a tuple."""
    found = unpack(outcome)
    if isinstance(found, Answer):
        return found
    if isinstance(found, Value) and found.data[:1] == _BYTES:
        return found.data[1:]
    if isinstance(found, Value) and found.data[:1] == _JSON:
        return orjson.loads(found.data[1:])
    lack = f"was not kept: {found.reason}" if isinstance(found, Tombstone) else "is not a result of a transaction"
    raise RecordUnreadable(f"the operation is done, and what it gave {lack}")


def json_of(value: object, what: str) -> bytes:
    """As JSON, in one spelling; or say what can be kept."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise ConfigurationError(
            f"{what} cannot be written as JSON ({error}): give bytes, an Answer, or what JSON knows: None, numbers, "
            "texts, lists and dicts"
        ) from error
