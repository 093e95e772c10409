"""Which keys are well formed, and the names that records get."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.keys import (
    KeyRule,
    ScopeHasher,
    key_ref,
    parse_key_lines,
    parse_key_text,
    principal_digest,
    record_id,
)
from oncekey.errors import BadKey, ConfigurationError

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
ACCEPT = KeyRule()
LITERAL = KeyRule(quoting="literal")
visible = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255)


def broken_rule(parse: Callable[[], str]) -> str:
    """Return the rule that the refusal names, after a look at what it tells the client."""
    with pytest.raises(BadKey) as refused:
        parse()
    error = refused.value
    assert error.status == 400
    assert re.fullmatch("[ -~]+", f"{error.detail} {error.send}")
    assert re.match("Send one key of ", error.send)
    return error.rule


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (UUID.encode(), UUID),
        (b'"' + UUID.encode() + b'"', UUID),
        (b" \tabc \t", "abc"),
        (b'  "abc" ', "abc"),
        (b'"a\\"b\\\\c"', 'a"b\\c'),
        (b'"a,b"', "a,b"),
        (b'abc"', 'abc"'),
        (b"a;v=1", "a;v=1"),
        (b"!#$%&'()*+-./:;<=>?@[]^_`{|}~", "!#$%&'()*+-./:;<=>?@[]^_`{|}~"),
        (b'"k";v=1;w;*x.y-z_=-1.5; s="a\\"b";t=tok/en:*;b=:aGk=:;y=?1;d=@1700000000;e=%"%c3%a9"', "k"),
        (b"x" * 255, "x" * 255),
        (b'"' + b"x" * 255 + b'"', "x" * 255),
    ],
)
def test_accepted(line: bytes, key: str) -> None:
    """Bare and quoted spellings of one key are one key; parameters are ignored."""
    assert parse_key_lines([line], ACCEPT) == key


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ([], "missing"),
        ([b"a", b"a"], "repeated"),
        ([b"a", b""], "repeated"),
        ([b"a,b"], "repeated"),
        ([b"a, a"], "repeated"),
        ([b'"a","b"'], "repeated"),
        ([b'"a", b'], "repeated"),
        ([b'a,"b"'], "repeated"),
        ([b""], "empty"),
        ([b" \t "], "empty"),
        ([b'""'], "empty"),
        ([b'"";v=1'], "empty"),
        ([b"x" * 256], "too-long"),
        ([b'"' + b"x" * 256 + b'"'], "too-long"),
        ([b"a\x00b"], "control"),
        ([b"a\r\nb"], "control"),
        ([b"a\tb"], "control"),
        ([b'"a\x7f"'], "control"),
        ([b"\x1b[31mred"], "control"),
        ([b"caf\xe9"], "non-ascii"),
        (["schlüssel".encode()], "non-ascii"),
        ([b'"\xff"'], "non-ascii"),
        ([b'"'], "quoting"),
        ([b'"abc'], "quoting"),
        ([b'"a"b"'], "quoting"),
        ([b'"a\\b"'], "quoting"),
        ([b'"a"x'], "quoting"),
        ([b'"a" ;v=1'], "quoting"),
        ([b'"a";'], "quoting"),
        ([b'"a";V=1'], "quoting"),
        ([b'"a";v='], "quoting"),
        ([b'"a";v=1.'], "quoting"),
        ([b'"a";v=1.2345'], "quoting"),
        ([b'"a";v=1234567890123456'], "quoting"),
        ([b'"a";v=(1)'], "quoting"),
        ([b"a b"], "space"),
        ([b'"a b"'], "space"),
        ([b'" a"'], "space"),
    ],
    ids=ascii,
)
def test_refused(lines: list[bytes], rule: str) -> None:
    """Every malformed header is refused by the rule that it breaks, in words fit for a log."""
    assert broken_rule(lambda: parse_key_lines(lines, ACCEPT)) == rule


def test_literal_keeps_quotes() -> None:
    """In a literal dialect quotes are part of the key, broken ones too."""
    assert parse_key_lines([b'"abc"'], LITERAL) == '"abc"'
    assert parse_key_lines([b' "abc '], LITERAL) == '"abc'


@pytest.mark.parametrize(("line", "rule"), [(b"a,b", "repeated"), (b'"a","b"', "repeated"), (b"a b", "space")])
def test_literal_refuses(line: bytes, rule: str) -> None:
    """A literal dialect refuses commas too: there also a server may have joined two lines."""
    assert broken_rule(lambda: parse_key_lines([line], LITERAL)) == rule


@given(visible)
def test_quoted_is_bare(key: str) -> None:
    """A key's quoted spelling gives the key, and so does its bare one where that is legal."""
    quoted = '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse_key_lines([quoted.encode()], ACCEPT) == key
    if "," not in key and not key.startswith('"'):
        assert parse_key_lines([key.encode()], ACCEPT) == key


@given(st.lists(st.binary(max_size=300) | st.text('"\\;=,a1 \t?@:%-.', max_size=12).map(str.encode), max_size=2))
def test_any_bytes(lines: list[bytes]) -> None:
    """Any bytes at all give a key of 1 to 255 visible characters, or BadKey."""
    for rule in (ACCEPT, LITERAL):
        try:
            key = parse_key_lines(lines, rule)
        except BadKey:
            continue
        assert re.fullmatch("[!-~]{1,255}", key)


@pytest.mark.parametrize(
    ("line", "broken"),
    [(b"abc", "too-short"), (b'"abc"', "too-short"), (b"abcdefg", "too-long"), (b'"abcdefg"', "too-long")],
)
def test_limits_count_the_key(line: bytes, broken: str) -> None:
    """Limits count the key's characters, quotes and escapes not."""
    rule = KeyRule(min_length=4, max_length=6)
    assert broken_rule(lambda: parse_key_lines([line], rule)) == broken
    assert parse_key_lines([b'"abcd"'], rule) == "abcd"
    assert parse_key_lines([b'"abcde\\""'], rule) == 'abcde"'
    assert "4 to 6" in rule.advice


@pytest.mark.parametrize("value", [UUID, "a,b", '"abc"', '"', "x" * 255])
def test_text_is_literal(value: str) -> None:
    """A key in a JSON body is what stands there, commas and quotes included."""
    assert parse_key_text(value, ACCEPT) == value


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (None, "missing"),
        (17, "type"),
        (True, "type"),
        (["a"], "type"),
        (b"a", "type"),
        ("", "empty"),
        (" a", "space"),
        ("a b", "space"),
        ("a\r\nb", "control"),
        ("a\x7f", "control"),
        ("clé", "non-ascii"),
        ("\U0001f511", "non-ascii"),
        ("\ud800", "non-ascii"),
        ("x" * 256, "too-long"),
    ],
    ids=ascii,
)
def test_text_refused(value: object, rule: str) -> None:
    """Keys in bodies obey the same rules by the same words."""
    assert broken_rule(lambda: parse_key_text(value, ACCEPT)) == rule


@pytest.mark.parametrize(("least", "most"), [(0, 255), (-1, 5), (1, 0), (6, 5)])
def test_impossible_lengths(least: int, most: int) -> None:
    """A rule that accepts no key is refused when it is made."""
    with pytest.raises(ConfigurationError, match="accepts no key"):
        KeyRule(min_length=least, max_length=most)


def test_unknown_quoting() -> None:
    """A quoting that does not exist is refused when the rule is made."""
    with pytest.raises(ConfigurationError, match='write "accept" or "literal"'):
        KeyRule(quoting="strict")  # type: ignore[arg-type]


def test_rules_are_values() -> None:
    """Two rules that say the same are equal and hash alike."""
    assert KeyRule(max_length=64) == KeyRule(max_length=64) != KeyRule()
    assert len({KeyRule(), KeyRule(), LITERAL}) == 2


def test_record_ids_never_collide() -> None:
    """No two lists of scope parts and keys give one record, however their characters are split."""
    words = ["", "a", "b", "ab", "a:b", "\x00", "aa"]
    scopes = [parts for size in range(4) for parts in itertools.product(words, repeat=size)]
    ids = {record_id(parts, key) for parts in scopes for key in words}
    assert len(ids) == len(scopes) * len(words)
    assert {len(record) for record in ids} == {20}


def test_scope_hasher() -> None:
    """A scope that is hashed once gives the same ids as one that is hashed each time, surrogates included."""
    scope = ["tenant\ud800", "POST /orders"]
    hasher = ScopeHasher(scope)
    assert [hasher.record_id(key) for key in ("a", UUID)] == [record_id(scope, "a"), record_id(scope, UUID)]


def test_record_id_is_stable() -> None:
    """Ids are stored: what they are made of may never change."""
    assert record_id(("tenant", "POST /orders"), UUID).hex() == "db00133c0a611b9eca149f9a5e107174da485aee"
    assert principal_digest("Bearer secret") == "5803e32b9ac231a3be67be5ef42cf7fa"


def test_names_tell_nothing() -> None:
    """Principals and keys appear only as digests."""
    assert re.fullmatch("[0-9a-f]{32}", principal_digest("Bearer \ud800"))
    assert principal_digest("a") != principal_digest("b")
    assert key_ref(bytes(range(20))) == "ok_000102030405"
