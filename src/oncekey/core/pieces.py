"""Lengths and texts as they stand in outcomes and journals.

A length has seven bits a byte, lowest first, the high bit on all bytes but the last. A text stands behind its length.
"""

from __future__ import annotations

_LONGEST = 4 * 7
SMALL = [bytes((number,)) for number in range(256)]


def length(number: int) -> bytes:
    """A number in as few bytes as it needs."""
    if number < 0x80:  # noqa: PLR2004 - seven bits, see the top
        return SMALL[number]
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """The number that stands there, and where it ends."""
    byte = data[at]
    at += 1
    if byte < 0x80:  # noqa: PLR2004
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004
            return number, at
        shift += 7
        if shift > _LONGEST:
            raise ValueError("a length of more than four bytes")


def text(data: bytes) -> bytes:
    """Bytes behind their length."""
    return length(len(data)) + data


def read_text(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes that stand there behind their length, and where they end."""
    size, at = read_length(data, at)
    end = at + size
    if end > len(data):
        raise ValueError("it ends too early")
    return data[at:end], end
