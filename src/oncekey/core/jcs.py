"""The canonical form of a JSON text: RFC 8785 (JCS), with one stated deviation.

The standard rounds every number to a double, so two different amounts can become one text:
9007199254740993 and 9007199254740992, or 1.000000000000000001 and 1. Here a number that a double
cannot carry keeps its own digits, arranged as the standard arranges them. So two texts get one
canonical form only if their numbers are mathematically equal (1, 1.0 and 1e0 are), and every number
that survives the trip through a double is written exactly as the standard says.

What has no single meaning has no canonical form: duplicate member names, lone surrogates, NaN and
infinities (1e999 too), a byte order mark, bytes that are not UTF-8, nesting deeper than 254, and
everything that is not JSON. `canonical` returns None for these and never raises.

This is the only module of the core that imports orjson, for its speed: it writes strings, literals,
small integers and most floats as the standard does. The rest is done here: odd numbers, and the
order of members where UTF-16 and UTF-8 disagree.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Pointer = tuple[str, ...]
"""A parsed JSON pointer: its reference tokens, unescaped."""

_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER

# Decimal text of at most 15 digits survives a double unchanged; 16 characters with a point hold no more than that.
_SAFE_LENGTH = 16
# orjson and ECMAScript print the doubles of this range alike, whole numbers excepted.
_SAFE_LEAST, _SAFE_BOUND = 1e-4, 1e15
# ECMAScript writes plain digits from 1e-6 up to below 1e21.
_PLAIN_LEAST, _PLAIN_BOUND = -6, 21

# Everything but what numbers are made of and the comma between them; the `e` of true and false stays, harmlessly.
_NOT_NUMERIC = b"{}[]: \t\r\ntrufalsn"
# A number that orjson would not read and write as the standard does: exponent, whole float, tiny, or long.
_ODD_NUMBER = re.compile(rb"[0-9](?:[eE]|\.0+(?![0-9])|\.0000|[0-9.]{16})")

_PLAIN = frozenset({str, int, bool, type(None)})
# As a number: `in` looks for one without raising an error to itself first, as it does for bytes.
_BACKSLASH = 0x5C
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_ASTRAL = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")
_ABOVE_SURROGATES = (b"\xee", b"\xef")


def canonical(
    raw: bytes, limit: int = 1 << 20, *, exclude: Sequence[Pointer] = (), rounding: bool = False
) -> bytes | None:
    """Return the canonical form of a JSON text, or None if it has none or is longer than `limit` bytes.

    `exclude` leaves out what its pointers name. `rounding` gives RFC 8785 to the letter, numbers rounded to
    doubles: for signatures and for comparison with other implementations, never for telling requests apart.
    """
    if len(raw) > limit:
        return None
    try:
        doc = orjson.loads(raw)  # the strict judge of what is JSON; the standard library's parser is lenient
        # The numbers of a flat object without fractions are written as they were read, or are too long and refused.
        is_plain = type(doc) is dict and _PLAIN.issuperset(map(type, doc.values()))
        if not is_plain and _ODD_NUMBER.search(_numbers(raw)):
            return _written(_reread(raw, rounding), raw, exclude)
        try:
            return _written(doc, raw, exclude)
        except TypeError:  # an integer of 54 bits or more
            return _written(_reread(raw, rounding), raw, exclude)
    except (ValueError, TypeError, RecursionError):  # not JSON, or JSON with more than one meaning, or too deep
        return None


def es6_number(x: float) -> bytes:
    """Return the text that ECMAScript, and so RFC 8785, gives to a finite double."""
    if x - x != 0:
        raise ValueError("NaN and infinities have no JSON text")
    return _arranged(repr(x))


def parse_pointer(text: str) -> Pointer:
    """Split a JSON pointer (RFC 6901) into its reference tokens; ValueError if it is none."""
    if not text.startswith("/") or re.search("~(?![01])", text):
        raise ValueError(f"{text!r} is not a JSON pointer")
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))


def _numbers(raw: bytes) -> bytes:
    """What stands outside of strings, as far as it may be part of a number, and the commas between."""
    return b"".join(_unescaped(raw).split(b'"')[::2]).translate(None, _NOT_NUMERIC)


def _written(doc: Any, raw: bytes, exclude: Sequence[Pointer]) -> bytes:
    out = orjson.dumps(doc, option=_SORTED)
    # Parsers keep the last of two members with one name. What they dropped is missing among the quotes.
    if _unescaped(out).count(b'"') != _unescaped(raw).count(b'"'):
        raise ValueError("duplicate member names")
    if exclude:
        for pointer in exclude:
            _leave_out(doc, pointer)
        out = orjson.dumps(doc, option=_SORTED)
    if not out.isascii() and _utf16_order_differs(out):
        out = orjson.dumps(_in_utf16_order(doc))
    return out


def _unescaped(text: bytes) -> bytes:
    """Drop what is escaped, so that each quote left opens or closes a string."""
    return _ESCAPE.sub(b"", text) if _BACKSLASH in text else text


def _reread(raw: bytes, rounding: bool) -> Any:  # noqa: FBT001 - private
    return (_ROUNDING if rounding else _EXACT).decode(raw.decode())


def _decoder(long_number: Callable[[str], bytes]) -> json.JSONDecoder:
    """Make a decoder whose numbers, written by orjson, come out in canonical form."""

    def fraction(text: str) -> int | float | orjson.Fragment:
        x = float(text)
        if len(text) <= _SAFE_LENGTH and _SAFE_LEAST <= abs(x) < _SAFE_BOUND:
            whole = int(x)
            return whole if whole == x else x
        return orjson.Fragment(long_number(text))

    def integer(text: str) -> int | orjson.Fragment:
        return int(text) if len(text) < _SAFE_LENGTH else orjson.Fragment(long_number(text))

    return json.JSONDecoder(parse_float=fraction, parse_int=integer)


def _arranged(text: str) -> bytes:
    """Write the digits of a decimal literal the way ECMAScript arranges those of a double."""
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent = text[len(sign) :].lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)  # the value is 0.DIGITS times 10 to the power of this
    digits = digits.rstrip("0")
    if not digits:
        return b"0"
    count = len(digits)
    if not _PLAIN_LEAST < point <= _PLAIN_BOUND:
        tail = "." + digits[1:] if count > 1 else ""
        out = f"{digits[0]}{tail}e{point - 1:+d}"
    elif point <= 0:
        out = "0." + "0" * -point + digits
    elif count <= point:
        out = digits + "0" * (point - count)
    else:
        out = digits[:point] + "." + digits[point:]
    return (sign + out).encode()


def _utf16_order_differs(out: bytes) -> bool:
    """Only a character outside the BMP beside one from U+E000 to U+FFFF sorts otherwise in UTF-16 than in UTF-8."""
    return any(lead in out for lead in _ASTRAL) and any(lead in out for lead in _ABOVE_SURROGATES)


def _in_utf16_order(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: _in_utf16_order(node[name]) for name in sorted(node, key=lambda s: s.encode("utf-16-be"))}
    if isinstance(node, list):
        return [_in_utf16_order(item) for item in node]
    return node


def _leave_out(node: Any, pointer: Pointer) -> None:
    """Remove the member that the pointer names. An array item becomes null: its neighbours keep their places."""
    for token in pointer[:-1]:
        node = _child(node, token)
    last = pointer[-1]
    if isinstance(node, dict):
        node.pop(last, None)
    elif _child(node, last) is not None:
        node[int(last)] = None


def _child(node: Any, token: str) -> Any:
    if isinstance(node, dict):
        return node.get(token)
    if isinstance(node, list) and _INDEX.fullmatch(token) and int(token) < len(node):
        return node[int(token)]
    return None


_EXACT = _decoder(_arranged)
_ROUNDING = _decoder(lambda text: es6_number(float(text)))
