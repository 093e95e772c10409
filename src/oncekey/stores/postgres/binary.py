"""Parameters as the server reads them without parsing: a batch is a few arrays, each put together by one join.

psycopg's own adaptation of lists costs several times as much as the rest of a batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

_ARRAY = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)
_INT2, _INT4, _INT8 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_SIZED_INT2, _SIZED_INT8 = struct.Struct(">ih"), struct.Struct(">iq")
BOOL_OID, BYTEA_OID, INT8_OID, INT2_OID, TEXT_OID = 16, 17, 20, 21, 25
_EMPTY = struct.Struct(">iiI")


def _array(oid: int, count: int, parts: Iterable[bytes]) -> bytes:
    if not count:
        return _EMPTY.pack(0, 0, oid)
    # The second field says that there may be nulls; the server counts them itself.
    return _ARRAY.pack(1, 1, oid, count, 1) + b"".join(parts)


def blobs(values: Sequence[bytes]) -> bytes:
    """A bytea[]; empty byte strings stay empty byte strings."""
    size = _LENGTH.pack
    return _array(BYTEA_OID, len(values), [size(len(value)) + value for value in values])


def blobs_or_none(values: Sequence[bytes | None]) -> bytes:
    """A bytea[], in which None is NULL."""
    size = _LENGTH.pack
    return _array(BYTEA_OID, len(values), [_NULL if value is None else size(len(value)) + value for value in values])


def texts(values: Sequence[str]) -> bytes:
    """A text[]."""
    encoded = [value.encode() for value in values]
    return _array(TEXT_OID, len(encoded), [_LENGTH.pack(len(value)) + value for value in encoded])


def smalls(values: Sequence[int]) -> bytes:
    """An int2[]."""
    pack = _SIZED_INT2.pack
    return _array(INT2_OID, len(values), [pack(2, value) for value in values])


def longs(values: Sequence[int | None]) -> bytes:
    """An int8[], in which None is NULL."""
    pack = _SIZED_INT8.pack
    return _array(INT8_OID, len(values), [_NULL if value is None else pack(8, value) for value in values])


def flags(values: Sequence[bool]) -> bytes:
    """A bool[]."""
    return _array(BOOL_OID, len(values), [b"\0\0\0\1\1" if value else b"\0\0\0\1\0" for value in values])


def small(value: int) -> bytes:
    """An int2."""
    return _INT2.pack(value)


def integer(value: int) -> bytes:
    """An int4."""
    return _INT4.pack(value)


def long(value: int | None) -> bytes | None:
    """An int8."""
    return None if value is None else _INT8.pack(value)


def flag(value: bool) -> bytes:  # noqa: FBT001 - it is the value
    """A bool."""
    return b"\1" if value else b"\0"


def text(value: str) -> bytes:
    """UTF-8 for a bytea column; what cannot be written in it becomes a question mark, for it is only shown."""
    return value.encode("utf-8", "replace")
