"""Which requests are the same, by their fingerprints."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.fingerprint import (
    CANONICAL,
    CONTENT_TYPE,
    KEYED,
    VERSION,
    Fingerprint,
    Fingerprinter,
    Parts,
    Presented,
    framed,
    matches,
)
from oncekey.errors import ConfigurationError, RecordUnreadable

OLD, NEW = b"o" * 16, b"n" * 16
PLAIN = Fingerprinter()
ORDER = Parts("POST", "/orders", b"dry=1", b"application/json", b'{"amount": 10.50, "currency": "usd"}')


def body(text: bytes) -> Parts:
    """Return the order with another body."""
    return ORDER._replace(body=text)


def same(maker: Fingerprinter, first: Parts, second: Parts) -> bool:
    """Say whether a request counts as a retry of another, and check that all ways of asking agree."""
    stored, fresh = maker.compute(first), maker.compute(second)
    assert maker.encoded(first) == stored.encode()
    answer = matches(stored, fresh)
    assert maker.matches_request(stored, second) == answer
    assert maker.matches_request(stored, second, fresh) == answer
    assert maker.matches_request(stored, second, maker.compute_raw(second)) == answer
    assert Presented(maker, second, fresh).same_request(stored.encode()) == answer
    return answer


def test_same_bytes() -> None:
    """The same bytes are the same request, by the raw half alone."""
    half = PLAIN.compute_raw(ORDER)
    assert half.canonical == b""
    assert matches(PLAIN.compute(ORDER), half)
    assert PLAIN.with_canonical(half, ORDER) == PLAIN.compute(ORDER)


@pytest.mark.parametrize(
    "other",
    [
        ORDER._replace(method="PUT"),
        ORDER._replace(path="/orders/"),
        ORDER._replace(query=b""),
        ORDER._replace(content_type=b"text/plain"),
        ORDER._replace(body=b"{}"),
    ],
    ids=Parts._fields,
)
def test_every_part_counts(other: Parts) -> None:
    """Another method, path, query, content type or body is another request."""
    assert not same(PLAIN, ORDER, other)


@pytest.mark.parametrize(
    "text",
    [b'{"currency":"usd","amount":10.5}', b'{"currency" : "\\u0075sd", "amount" : 1050e-2}\n'],
)
def test_same_meaning(text: bytes) -> None:
    """JSON that means the same is the same request."""
    assert same(PLAIN, ORDER, body(text))
    assert not same(Fingerprinter(canonical=False), ORDER, body(text))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (b'{"amount":9007199254740993}', b'{"amount":9007199254740992}'),
        (b'{"amount":9007199254740993.0}', b'{"amount":9007199254740992.0}'),
        (b'{"amount":1.000000000000000001}', b'{"amount":1}'),
        (b'{"amount":1,"amount":2}', b'{"amount":2}'),
        (b'{"amount":NaN}', b'{"amount":null}'),
        (b'{"amount":1e999}', b'{"amount":2e999}'),
        (b'{"amount":1}', b'{"amount":"1"}'),
        (b'"\\ud800"', b'"\\udc00"'),
        (b"[" * 20_000 + b"]" * 20_000, b"[" * 20_000 + b" " + b"]" * 20_000),
    ],
)
def test_never_merged(left: bytes, right: bytes) -> None:
    """Two amounts are never merged, and odd JSON counts by its bytes."""
    assert not same(PLAIN, body(left), body(right))
    assert same(PLAIN, body(left), body(left))


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        (b"application/json", True),
        (b"Application/JSON; charset=UTF-8", True),
        (b'application/json;charset="utf-8"', True),
        (b"application/vnd.order+json", True),
        (b"application/json; charset=latin-1", False),
        (b"application/json; version=2", False),
        (b"application/jsonp", False),
        (b"application/x-www-form-urlencoded", False),
        (b"multipart/form-data; boundary=x", False),
        (b"", False),
    ],
)
def test_canonical_for_json_only(content_type: bytes, is_json: bool) -> None:
    """Only a JSON body has a canonical digest; parameters other than UTF-8's name may change what it means."""
    parts = ORDER._replace(content_type=content_type)
    assert bool(PLAIN.compute(parts).canonical) == is_json
    assert same(PLAIN, parts, parts._replace(body=ORDER.body + b"\n")) == is_json


def test_content_type() -> None:
    """Spellings of one media type are one; two JSON types are two, unless content types are left out."""
    spelt = ORDER._replace(content_type=b"Application/JSON; charset=utf-8")
    other = ORDER._replace(content_type=b"application/vnd.order+json")
    assert same(PLAIN, ORDER, spelt)
    assert not same(PLAIN, ORDER, other)
    for kind in (other, ORDER._replace(content_type=b"text/plain")):
        assert same(Fingerprinter(content_type=False), ORDER, kind)


def test_limit() -> None:
    """A body over the limit has its raw digest only."""
    assert Fingerprinter(limit=10).compute(ORDER).canonical == b""


def test_framing_never_collides() -> None:
    """No two lists of parts make one message, however their bytes are split."""
    words = [b"", b"0", b"1", b"01", b"1 0"]
    lists = list(itertools.product(words, repeat=6))
    assert len({framed(*parts) for parts in lists}) == len(lists)


def test_fingerprints_never_collide() -> None:
    """Over a small alphabet all requests have digests of their own, raw and canonical never mixed up."""
    words = [b"", b"1", b"11", b"/"]
    requests = [
        Parts(m.decode(), p.decode(), q, t, b)
        for m, p, q, b in itertools.product(words, repeat=4)
        for t in (b"", b"application/json", b"a/b+json")
    ]
    prints = [PLAIN.compute(parts) for parts in requests]
    digests = [p.raw for p in prints] + [p.canonical for p in prints if p.canonical]
    assert len(set(digests)) == len(digests)


def test_excluded_fields() -> None:
    """A retry may change the fields that are left out, and only those."""
    maker = Fingerprinter(exclude=frozenset({"/sent_at", "/meta/trace"}))
    first = body(b'{"amount":1,"sent_at":5,"meta":{"trace":"x","v":1}}')
    assert same(maker, first, body(b'{"amount":1,"sent_at":6,"meta":{"v":1}}'))
    assert not same(maker, first, body(b'{"amount":2,"sent_at":5,"meta":{"trace":"x","v":1}}'))
    assert not same(maker, first, body(b'{"amount":1,"sent_at":5,"meta":{"trace":"x","v":2}}'))


def test_other_exclusions() -> None:
    """Under another list of excluded fields an old record matches by its bytes, never by what is left."""
    old, new = Fingerprinter(exclude=frozenset({"/a"})), Fingerprinter(exclude=frozenset({"/b"}))
    stored = old.compute(body(b'{"a":1,"c":3}'))
    assert new.matches_request(stored, body(b'{"a":1,"c":3}'))
    assert not new.matches_request(stored, body(b'{"b":2,"c":3}'))
    glued = Fingerprinter(exclude=frozenset({"/a\n/b"})), Fingerprinter(exclude=frozenset({"/a", "/b"}))
    assert glued[0].compute(ORDER).canonical != glued[1].compute(ORDER).canonical


@pytest.mark.parametrize(
    ("maker", "recipe"),
    [
        (Fingerprinter(), VERSION | CONTENT_TYPE | CANONICAL),
        (Fingerprinter(content_type=False), VERSION | CANONICAL),
        (Fingerprinter(canonical=False), VERSION | CONTENT_TYPE),
        (Fingerprinter(secrets={7: OLD}), VERSION | CONTENT_TYPE | CANONICAL | KEYED),
    ],
)
def test_recipe(maker: Fingerprinter, recipe: int) -> None:
    """The recipe says how a fingerprint was made, and survives storage with the rest."""
    made = maker.compute(ORDER)
    assert made.recipe == maker.recipe == recipe
    assert Fingerprint.decode(made.encode()) == made
    assert len(made.encode()) == 1 + bool(recipe & KEYED) + 16 + (16 if recipe & CANONICAL else 0)


def test_recipe_of_an_old_record() -> None:
    """Every configuration compares by the recipe that the record was made with."""
    makers = [
        Fingerprinter(content_type=with_type, canonical=canonical, secrets=secrets, current=current)
        for with_type, canonical in itertools.product((True, False), repeat=2)
        for secrets, current in (({1: OLD, 2: NEW}, 1), ({1: OLD, 2: NEW}, 2))
    ]
    respelt, other = body(b'{"currency":"usd","amount":10.5}'), body(b'{"currency":"usd","amount":10.6}')
    for old, new in itertools.product(makers, repeat=2):
        stored, fresh = old.compute(ORDER), new.compute(ORDER)
        assert new.matches_request(stored, ORDER, fresh)
        assert new.matches_request(stored, respelt) == old.canonical
        assert not new.matches_request(stored, other, new.compute(other))


def test_unkeyed_records_stay_readable() -> None:
    """Introducing a secret leaves the records of yesterday readable."""
    assert Fingerprinter(secrets={1: NEW}).matches_request(PLAIN.compute(ORDER), ORDER)


def test_lost_secret() -> None:
    """Where the secret of a record is gone nobody can say, and that is an error, never a match or a mismatch."""
    stored = Fingerprinter(secrets={1: OLD}).compute(ORDER)
    with pytest.raises(RecordUnreadable, match="secret 1, which is not among"):
        Fingerprinter(secrets={2: NEW}).matches_request(stored, ORDER)


def test_keyed_against_a_dictionary() -> None:
    """Without the secret a digest cannot be matched with a guessed request, and the secret is not shown."""
    maker = Fingerprinter(secrets={1: OLD})
    keyed, plain, other = (m.compute(ORDER) for m in (maker, PLAIN, Fingerprinter(secrets={1: NEW})))
    assert len({keyed.raw, plain.raw, other.raw, hashlib.sha256(ORDER.body).digest()[:16]}) == 4
    assert len({keyed.canonical, plain.canonical, other.canonical}) == 3
    assert "oooo" not in repr(maker)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00" * 17, b"\x23" + b"x" * 32, b"\x11", b"\x11" + b"x" * 32, b"\x13" + b"x" * 20, b"\x17" + b"x" * 16],
)
def test_unreadable(data: bytes) -> None:
    """A fingerprint of an unknown recipe or a wrong length is reported, not compared."""
    with pytest.raises(RecordUnreadable):
        Fingerprint.decode(data)


def test_unknown_recipe() -> None:
    """A fingerprint of an unknown recipe is reported, whatever way it came."""
    with pytest.raises(RecordUnreadable, match="unknown recipe"):
        PLAIN.matches_request(Fingerprint(0x20, b"x" * 16), ORDER)


def test_stable() -> None:
    """Digests are stored: what they are made of may change only under a new recipe."""
    assert PLAIN.compute(ORDER).encode().hex() == "1364f52e7c88f79edfad00bc78368c17c153b3394f443ab996ddb223635e309d84"
    keyed = Fingerprinter(secrets={1: OLD}, exclude=frozenset({"/x"}))
    assert keyed.compute(ORDER).encode().hex() == "1701a2425afd7f8b361613b1c3b52228cef6e7c4dd7f734254a4a0405ef71e064ea4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secrets": {0: OLD}}, "from 1 to 255"),
        ({"secrets": {256: OLD}}, "from 1 to 255"),
        ({"secrets": {1: b"short"}}, "shorter than 16 bytes"),
        ({"secrets": {1: OLD, 2: NEW}}, "write current="),
        ({"secrets": {1: OLD}, "current": 2}, "not among the ids"),
        ({"current": 1}, "not among the ids"),
        ({"exclude": frozenset({"sent_at"})}, "not a JSON pointer"),
        ({"exclude": frozenset({""})}, "not a JSON pointer"),
        ({"exclude": frozenset({"/a"}), "canonical": False}, "leave canonical=True"),
        ({"limit": 0}, "write canonical=False"),
    ],
)
def test_bad_options(options: dict, message: str) -> None:
    """Options that cannot work are refused at construction, with what to write instead."""
    with pytest.raises(ConfigurationError, match=message):
        Fingerprinter(**options)


@given(st.builds(Parts, st.text(), st.text(), st.binary(), st.just(b"application/json") | st.binary(), st.binary()))
def test_never_raises(parts: Parts) -> None:
    """Every request has a fingerprint, and is itself."""
    assert same(PLAIN, parts, parts)
