"""The canonical form of JSON: RFC 8785, and the one deviation from it."""

from __future__ import annotations

import hashlib
import inspect
import json
import struct
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import assume, example, given
from hypothesis import strategies as st

from oncekey.core.jcs import canonical, es6_number, parse_pointer
from tests.core import vectors_jcs as vectors

# A number as people and machines write it, odd spellings included.
number_texts = st.one_of(
    st.from_regex(
        r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
        fullmatch=True,
        alphabet=st.characters(codec="ascii"),
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(str),
)
characters = st.characters(exclude_categories=["Cs"])
names = st.text(characters, max_size=4) | st.sampled_from(
    ["\U0001f600", "\ue000", "\ufb33", "\uffff", "\U00010000", "a"]
)
documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)

VOLATILE = b'{"sent_at": 9.0, "items": [{"t": 5, "id": 1}, 7], "a/b": {"~": 3}}'
published_documents = pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in vectors.DOCUMENTS], ids=[row[0] for row in vectors.DOCUMENTS]
)


def double(bits: int) -> float:
    """Return the double that has these bits."""
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


def series() -> Iterator[int]:
    """Yield the bits of the published series, without end."""
    yield from (int(word, 16) for word in vectors.SERIES_START.split())
    yield from range(vectors.SERIAL_START, vectors.SERIAL_START + vectors.SERIAL_COUNT)
    block = bytes(32)
    while True:
        block = hashlib.sha256(block).digest()
        for bits in struct.unpack("<4Q", block):
            if double(bits) - double(bits) == 0 and double(bits) != 0:
                yield bits


@published_documents
def test_reference_documents(text: bytes, expected: bytes) -> None:
    """With rounding, the six documents of the reference become exactly what it publishes."""
    assert canonical(text, rounding=True) == expected


@published_documents
def test_reference_documents_keep_digits(text: bytes, expected: bytes) -> None:
    """Without rounding they differ in one number only: the one with more digits than a double carries."""
    assert canonical(text) == expected.replace(b"333333333.3333333,", b"333333333.33333329,")


@pytest.mark.parametrize(("bits", "expected"), vectors.NUMBERS)
def test_appendix_b(bits: int, expected: bytes) -> None:
    """Each number of the standard's appendix B gets the text that stands there."""
    assert es6_number(double(bits)) == expected


@pytest.mark.parametrize("bits", vectors.NO_NUMBERS)
def test_no_text_for_no_number(bits: int) -> None:
    """NaN and the infinities have no JSON text."""
    with pytest.raises(ValueError, match="no JSON text"):
        es6_number(double(bits))


def test_published_series() -> None:
    """The first 100,000 numbers of the published series hash to the published value."""
    lines = hashlib.sha256()
    for bits, _ in zip(series(), range(vectors.SERIES_LINES), strict=False):
        lines.update(b"%x,%b\n" % (bits, es6_number(double(bits))))
    assert lines.hexdigest() == vectors.SERIES_SHA256


def test_series_as_documents() -> None:
    """A double written in Python's own shortest text becomes, inside a document, its ECMAScript text."""
    bits = [bits for bits, _ in zip(series(), range(8_000), strict=False)]
    text = json.dumps([double(b) for b in bits]).encode()
    expected = b"[" + b",".join(es6_number(double(b)) for b in bits) + b"]"
    assert canonical(text) == canonical(text, rounding=True) == expected


def test_members_in_utf16_order() -> None:
    """Members are sorted by UTF-16 code units, where an emoji comes before U+FB33."""
    text = json.dumps(dict.fromkeys(reversed(vectors.SORTED_NAMES))).encode()
    assert list(json.loads(canonical(text) or b"")) == list(vectors.SORTED_NAMES)


@given(documents)
@example({"\U0001f600": 1, "\ue000": 2})
@example({"\U0001f600": 1, "\ufb33": [{"\U0001f600": 1.0, "\uffff": 2}]})
@example([1e-5, 0.0001, 1e15, 1e16, 1e21, 1.5e300, -0.0, 100.0, 5e-324])
def test_same_as_rfc8785(document: Any) -> None:
    """Where doubles suffice, the form is that of an independent implementation, from any spelling of the document."""
    expected = rfc8785.dumps(document)
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, indent=1)):
        assert canonical(text.encode()) == canonical(text.encode(), rounding=True) == expected
    assert canonical(orjson.dumps(document)) == expected
    assert canonical(expected) == expected


@given(number_texts, number_texts)
@example("9007199254740993", "9007199254740992")
@example("9007199254740993.0", "9007199254740992.0")
@example("1.000000000000000001", "1")
@example("100000000000000000000", "1e20")
@example("1e-400", "0")
@example("-0", "0e99")
def test_merges_equal_numbers_only(left: str, right: str) -> None:
    """Two numbers have one canonical form exactly when they are mathematically equal."""
    forms = [canonical(f'{{"amount":{text}}}'.encode()) for text in (left, right)]
    assume(None not in forms)
    assert (forms[0] == forms[1]) == (Decimal(left) == Decimal(right))


@given(number_texts)
def test_keeps_the_value(text: str) -> None:
    """A canonical number is mathematically the number that was written."""
    form = canonical(text.encode())
    assert form is not None
    assert Decimal(form.decode()) == Decimal(text)


@given(number_texts)
@example("1e5")
@example("1.0")
@example("-0")
@example("12345678901234567")
@example("1" * 20)
@example("1" * 400)
def test_a_number_is_written_alike_wherever_it_stands(text: str) -> None:
    """A flat object is looked at less closely than what has objects or lists inside."""
    flat, nested = canonical(b'{"a":%b}' % text.encode()), canonical(b'{"a":[%b]}' % text.encode())
    assert flat == (nested.replace(b"[", b"").replace(b"]", b"") if nested is not None else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"10.00", b"10"),
        (b"-0.0", b"0"),
        (b"0.00001", b"0.00001"),
        (b"0.0000015", b"0.0000015"),
        (b"0.0000001", b"1e-7"),
        (b"0.0001", b"0.0001"),
        (b"-1.50", b"-1.5"),
        (b"12.0500", b"12.05"),
        (b"1E2", b"100"),
        (b"99999999999999.5", b"99999999999999.5"),
        (b"9007199254740.993", b"9007199254740.993"),
        (b"333333333.33333329", b"333333333.33333329"),
        (b"18446744073709551616", b"18446744073709551616"),
        (b"100000000000000000000", b"100000000000000000000"),
        (b"1000000000000000000000", b"1e+21"),
    ],
)
def test_spellings(text: bytes, expected: bytes) -> None:
    """Each spelling of a number, alone in its document, gets the one canonical text."""
    assert canonical(text) == canonical(b"[" + text + b"]")[1:-1] == expected  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"9007199254740993", b"9007199254740993"),
        (b"-9007199254740993.0", b"-9007199254740993"),
        (b"1152921504606846976", b"1152921504606846976"),
        (b"18446744073709551617", b"18446744073709551617"),
        (b"1000000000000000000001", b"1.000000000000000000001e+21"),
        (b"0.1000000000000000055", b"0.1000000000000000055"),
    ],
)
def test_deviation(text: bytes, expected: bytes) -> None:
    """A number that a double would change keeps its digits; only with rounding it is changed."""
    assert canonical(text) == expected
    assert canonical(text, rounding=True) == es6_number(float(text)) != expected


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"{", b"[1,]", b"01", b"1.", b"'a'", b'{"a":1}x', b'"\t"',
        b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b"[-1e999]", b"1" * 400,
        b'{"a":1,"a":1}', b'{"a":1,"\\u0061":2}', b'[{"b":{"\\"":1,"x":"\\\\","\\u0022":2}}]',
        b'{"\\\\":1,"\\u005c":1.0}',
        b'"\\ud800"', b'"\\ude00\\ud83d"', b'{"\\udfff":1}', b'"\xed\xa0\x80"',
        b'"\xff"', b'"\xc3"', "é".encode("latin-1"), "\ufeff1".encode(), '"é"'.encode("utf-16"), b"1\x00",
        b"[" * 20_000 + b"]" * 20_000, b'{"a":' * 20_000 + b"1e5" + b"}" * 20_000,
        b"[" * 300 + b"1.0" + b"]" * 300, b"[" * 1_000_000,
    ],
    ids=lambda text: ascii(text[:24].decode("latin-1")),
)  # fmt: skip
def test_no_canonical_form(text: bytes) -> None:
    """What is no JSON, or has no single meaning, or nests too deep, has no canonical form, and nothing is raised."""
    assert canonical(text) is None


@given(
    st.binary(max_size=60)
    | st.text(
        '{}[]",:\\u0eE+-.19atrue \ud83d\ude00'.encode("utf-16", "surrogatepass").decode("utf-16"), max_size=60
    ).map(str.encode)
)
def test_never_raises(raw: bytes) -> None:
    """Any bytes at all give a form or None, and a form is its own form."""
    form = canonical(raw)
    assert form is None or canonical(form) == form


def test_deep_in_the_stack() -> None:
    """Deep nesting met deep in a call stack gives a form or None, and never a RecursionError."""
    text = b"[" * 250 + b"1.0" + b"]" * 250

    def at_depth(frames: int) -> bytes | None:
        return at_depth(frames - 1) if frames else canonical(text)

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    assert at_depth(room - 200) in {None, text.replace(b".0", b"")}


@given(st.lists(st.tuples(names, st.sampled_from(["1", "1.0", '"x"', "[]"])), max_size=5), st.booleans())
def test_duplicate_names(members: list[tuple[str, str]], ascii_only: bool) -> None:
    """An object has a form exactly when its names differ, however they are escaped."""
    text = ",".join(f"{json.dumps(name, ensure_ascii=ascii_only)}:{value}" for name, value in members)
    unique = len({name for name, _ in members}) == len(members)
    assert (canonical(f'[{{{text}}},"\\""]'.encode()) is not None) == unique


def test_limit() -> None:
    """A text over the limit has no form, one at the limit has."""
    assert canonical(b"[1, 2]", limit=6) == b"[1,2]"
    assert canonical(b"[1, 2]", limit=5) is None


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("/sent_at", b'{"a/b":{"~":3},"items":[{"id":1,"t":5},7]}'),
        ("/items/0/t", b'{"a/b":{"~":3},"items":[{"id":1},7],"sent_at":9}'),
        ("/items/1", b'{"a/b":{"~":3},"items":[{"id":1,"t":5},null],"sent_at":9}'),
        ("/a~1b/~0", b'{"a/b":{},"items":[{"id":1,"t":5},7],"sent_at":9}'),
    ],
)
def test_exclude(pointer: str, expected: bytes) -> None:
    """What a pointer names is left out, and an array keeps its length."""
    assert canonical(VOLATILE, exclude=(parse_pointer(pointer),)) == expected


@pytest.mark.parametrize("pointer", ["/no", "/items/2", "/items/01", "/items/-", "/sent_at/x", "/items/0/t/u"])
def test_exclude_nothing(pointer: str) -> None:
    """A pointer to nothing changes nothing."""
    assert canonical(VOLATILE, exclude=(parse_pointer(pointer),)) == canonical(VOLATILE)


def test_exclude_needs_unique_names() -> None:
    """A duplicate name stays a reason for having no form even where it is excluded."""
    assert canonical(b'{"t":1,"t":2}', exclude=(("t",),)) is None


@pytest.mark.parametrize("text", ["", "a", "a/b", "/~", "/a~2"])
def test_bad_pointer(text: str) -> None:
    """A pointer is a chain of tokens behind slashes, with `~` only in `~0` and `~1`."""
    with pytest.raises(ValueError, match="not a JSON pointer"):
        parse_pointer(text)
