from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.errors import BadKey
from oncekey.http.dialects import DIALECTS, dialect
from oncekey.http.keyfield import find_key
from oncekey.http.messages import Request

OPTIONAL = replace(dialect("square"), required=False)


def by_header(*values: bytes, name: bytes = b"idempotency-key", method: str = "POST") -> Request:
    """A request with these lines of the header."""
    return Request(method, "/a", b"", [(b"host", b"x"), *[(name, value) for value in values]], b"{}")


def by_body(body: bytes, *headers: tuple[bytes, bytes]) -> Request:
    """A request that may have its key in its body."""
    return Request("POST", "/a", b"", list(headers), body)


@pytest.mark.parametrize(
    ("name", "sent", "key"),
    [
        ("ietf", b'"abc"', "abc"),
        ("ietf", b"abc", "abc"),
        ("stripe", b'"abc"', '"abc"'),
        ("adyen", b'"abc"', '"abc"'),
        ("stripe", b"stainless-python-retry-8e03978e-40d5-43dd-bc93-6894a57f9324", None),
        ("adyen", b"auto_8e03978e-40d5-43dd-bc93-6894a57f9324", None),
    ],
)
def test_quotes_belong_to_the_key_at_providers_and_not_in_the_standard(name: str, sent: bytes, key: str | None) -> None:
    """IETF unquotes; for a provider two spellings are two keys; the long keys of SDKs fit."""
    assert find_key(dialect(name), by_header(sent)) == (key or sent.decode())


@pytest.mark.parametrize(("name", "longest"), [("ietf", 255), ("stripe", 255), ("adyen", 64), ("paypal", 108)])
def test_each_dialect_has_its_own_longest_key(name: str, longest: int) -> None:
    """One character more is refused, and the text says where the key goes."""
    one = dialect(name)
    assert find_key(one, by_header(b"k" * longest, name=one.header_name)) == "k" * longest
    with pytest.raises(BadKey, match=f"in the header {one.header}") as refused:
        find_key(one, by_header(b"k" * (longest + 1), name=one.header_name))
    assert refused.value.rule == "too-long"


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ([b""], "empty"),
        ([b"a", b"a"], "repeated"),
        ([b"a,b"], "repeated"),
        ([b"a b"], "space"),
        ([b"caf\xc3\xa9"], "non-ascii"),
        ([b"a\x00"], "control"),
        ([b'"a'], "quoting"),
    ],
)
def test_a_bad_header_is_refused_where_a_key_is_optional_too(values: list[bytes], rule: str) -> None:
    """A client that sends a key wants its protection."""
    for one in (dialect("ietf"), replace(dialect("ietf"), required=False)):
        with pytest.raises(BadKey) as refused:
            find_key(one, by_header(*values))
        assert refused.value.rule == rule


def test_a_missing_key_is_refused_only_where_one_is_required() -> None:
    """The dialect says so, and the caller may overrule it."""
    for one in DIALECTS.values():
        assert find_key(one, by_body(b"{}"), required=False) is None
        with pytest.raises(BadKey, match=r"header|JSON member") as refused:
            find_key(one, by_body(b"{}"), required=True)
        assert refused.value.rule == "missing"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE", "get", ""])
def test_other_methods_have_no_key(method: str) -> None:
    """Requests that the dialect does not cover are not looked at, whatever they carry."""
    for one in DIALECTS.values():
        assert find_key(one, by_header(b"a", b"b", method=method), required=True) is None


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"idempotency_key":"k1"}', "k1"),
        (b'{"a":{"idempotency_key":"inner"},"idempotency_key":"k1"}', "k1"),
        (b'{"idempotency\\u005fkey":"k1"}', "k1"),
        (b'{"idempotency_key":"k1","x":NaN}', "k1"),
        (b'{"idempotency_key":"k1","x":"\\ud800"}', "k1"),
        ('{"idempotency_key":"k1"}'.encode("utf-16"), "k1"),
        (b'{"idempotency_key":"a,b"}', "a,b"),
        (b'{"idempotency_key":null}', None),
        (b'{"a":{"idempotency_key":"inner"}}', None),
        (b'["idempotency_key"]', None),
        (b'"idempotency_key"', None),
        (b"a=1&b=2", None),
        (b"", None),
        (b"{" * 50_000, None),
        (b"[" * 50_000, None),
        (b"9" * 9_000, None),
        (b"\xff\xfe\xfa", None),
    ],
)
def test_a_key_in_a_body_is_found_as_an_application_would(body: bytes, key: str | None) -> None:
    """At the top level of an object, read leniently where the strict reader fails; nothing else counts."""
    assert find_key(OPTIONAL, by_body(body)) == key


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b'{"idempotency_key":"a","idempotency_key":"b"}', "repeated"),
        (b'{"idempotency_key":"a","idempotency\\u005fkey":"b"}', "repeated"),
        (b'{"idempotency_key":7}', "type"),
        (b'{"idempotency_key":{}}', "type"),
        (b'{"idempotency_key":""}', "empty"),
        (b'{"idempotency_key":"a b"}', "space"),
        (b'{"idempotency_key":"a\\r\\nb"}', "control"),
        ('{"idempotency_key":"\U0001f600"}'.encode(), "non-ascii"),
        (b'{"idempotency_key":"\\ud800"}', "non-ascii"),
        (b'{"idempotency_key":"' + b"k" * 46 + b'"}', "too-long"),
        (b'{"idempotency_key":"k1"', "unreadable"),
        (b'{"idempotency_key":"k1","a":' + b"[" * 50_000, "unreadable"),
        (b'{"idempotency_key":"k1","a":' + b"9" * 9_000 + b"}", "unreadable"),
        (b'{"idempotency_key":"k\xff"}', "unreadable"),
    ],
)
def test_an_odd_key_in_a_body_is_refused(body: bytes, rule: str) -> None:
    """A body that names the member and is odd there is never run without protection."""
    with pytest.raises(BadKey) as refused:
        find_key(OPTIONAL, by_body(body))
    assert (refused.value.rule, "the JSON member idempotency_key" in str(refused.value)) == (rule, True)


def test_a_compressed_body_is_refused_where_the_key_is_inside() -> None:
    """We cannot see the key that the application may see."""
    with pytest.raises(BadKey, match="compressed"):
        find_key(OPTIONAL, by_body(b"\x1f\x8b", (b"content-encoding", b"gzip")))
    plain = by_body(b'{"idempotency_key":"k"}', (b"content-encoding", b" Identity "))
    assert find_key(OPTIONAL, plain) == "k"


def test_aws_tokens_go_by_several_names() -> None:
    """The first spelling that is there counts; two of them are one too many."""
    assert find_key(dialect("aws"), by_body(b'{"clientToken":"t1"}')) == "t1"
    assert find_key(dialect("aws"), by_body(b'{"ClientRequestToken":"t1","clientToken":null}')) == "t1"
    with pytest.raises(BadKey) as refused:
        find_key(dialect("aws"), by_body(b'{"clientToken":"t1","ClientToken":"t1"}'))
    assert refused.value.rule == "repeated"


@given(st.binary(max_size=60) | st.binary(max_size=30).map(lambda odd: b'{"idempotency_key":' + odd))
def test_no_body_raises_anything_but_bad_key(body: bytes) -> None:
    """Whatever arrives, the answer is a key, none, or a refusal."""
    try:
        found = find_key(OPTIONAL, by_body(body))
    except BadKey:
        return
    assert found is None or found.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON), st.text("abc-123", min_size=1, max_size=45), st.booleans())
def test_a_key_is_found_among_any_members(others: dict, key: str, escaped: bool) -> None:
    """What else is in the body makes no difference, however it is escaped."""
    body = json.dumps({**others, "idempotency_key": key}, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert find_key(OPTIONAL, by_body(body)) == key


@given(st.lists(st.binary(max_size=40), max_size=3))
def test_no_header_raises_anything_but_bad_key(values: list[bytes]) -> None:
    """Header bytes outside ASCII do arrive: they are refused and never an error of ours."""
    for name in ("ietf", "stripe"):
        try:
            find_key(dialect(name), by_header(*values))
        except BadKey:
            continue
