"""What is fuzzed byte by byte: each target takes any bytes, and raises if a rule does not hold for them.

A rule is never only "it does not crash": what is written is read back, what two ways can decide they decide alike, and
garbage is refused by the one error that means so. Fuzzers find `TARGETS` by name; `seeds` gives them a start.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import h11
import rfc8785

from oncekey.core import jcs, journal, outcome, record
from oncekey.core.fingerprint import Fingerprint, Fingerprinter, Parts
from oncekey.core.keys import KeyRule, parse_key_lines
from oncekey.engine.sealing import Sealer
from oncekey.errors import BadKey, RecordForged, RecordUnreadable
from oncekey.http.answer import replay
from oncekey.http.dialects import DIALECTS
from oncekey.http.exchange import Exchange
from oncekey.http.gate import Gate
from oncekey.http.keyfield import find_key
from oncekey.http.messages import Reply, Request
from oncekey.http.scope import SHARED
from oncekey.stores.redis import layout

Target = Callable[[bytes], None]

ID = bytes(range(20))
UNREADABLE = (RecordUnreadable, RecordForged)
# Outcomes larger than this would only make a fuzzer slow.
LARGEST = 1 << 20
RINGS = (
    Sealer(compress_above=64, largest=LARGEST),
    Sealer(compress_above=64, keys={"k1": os.urandom(32)}, largest=LARGEST),
    Sealer(compress_above=None, keys={"k1": os.urandom(32), "k2": os.urandom(32)}, current="k2", largest=LARGEST),
)
# Unless a bare key begins with a quote or holds a comma, it can be written bare and quoted, and is the same key.
PLAIN_KEY = re.compile(r"[!#-+\--\[\]-~][!#-+\--\[\]-~]*")


# ---- keys --------------------------------------------------------------------------------------------------------


def key(data: bytes) -> None:
    """A key in a header: a well-formed one or BadKey, by the short way as by the long one."""
    lines = data.split(b"\n")
    for rule in (KeyRule(), KeyRule(8, 64), KeyRule(quoting="literal")):
        found = _verdict(lines, rule)
        assert found == _verdict(lines, _slowly(rule)), "the two ways to read a key disagree"
        if isinstance(found, BadKey):
            continue
        assert len(lines) == 1, "two header lines gave one key"
        assert rule.min_length <= len(found) <= rule.max_length
        assert all(0x21 <= ord(letter) <= 0x7E for letter in found)
        if rule.quoting == "accept" and PLAIN_KEY.fullmatch(found):
            spellings = (found.encode(), b'"' + found.encode() + b'"', b" " + found.encode() + b"\t")
            assert {parse_key_lines([each], rule) for each in spellings} == {found}


def _verdict(lines: list[bytes], rule: KeyRule) -> str | BadKey:
    try:
        return parse_key_lines(lines, rule)
    except BadKey as bad:
        return _Same(bad.rule, bad.detail, bad.send)


class _Same(BadKey):
    """Equal to another that says the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BadKey) and (self.rule, self.detail) == (other.rule, other.detail)

    __hash__ = None  # type: ignore[assignment]


def _slowly(rule: KeyRule) -> KeyRule:
    slow = KeyRule(rule.min_length, rule.max_length, rule.quoting)
    object.__setattr__(slow, "ordinary", re.compile(rb"(?!)"))
    return slow


def key_in_a_body(data: bytes) -> None:
    """A key in a JSON body: what the standard library's parser sees there, member by member, or BadKey."""
    square = DIALECTS["square"]
    members = square.members
    try:
        pairs = json.loads(data, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        pairs = None
    try:
        found = find_key(square, Request("POST", "/a", b"", [], data), required=False)
    except BadKey:
        # Refused: unreadable and names the member, or named more than once, or no good key.
        assert pairs is None or any(name in members and value is not None for name, value in _top(pairs))
        return
    said = [value for name, value in _top(pairs) if name in members and value is not None]
    assert said == ([found] if found is not None else []), "another reader finds another key in this body"


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written."""


def _top(value: Any) -> list[tuple[str, Any]]:
    return value if isinstance(value, _Pairs) else []


def request(data: bytes) -> None:
    """Any header and body make an exchange, or a refusal with a status that says whose fault it is."""
    head, _, body = data.partition(b"\n\n")
    pairs = [line.partition(b":") for line in head.split(b"\n")]
    for gate in GATES:
        asked = Request("POST", "/pay", b"", [(name.lower(), value) for name, _, value in pairs], body)
        found = gate.key(asked)
        if isinstance(found, Reply):
            assert found.status == 400
        elif found is not None:
            made = gate.prepare(asked, found)
            assert isinstance(made, Exchange)
            assert made.same_request(made.claim.fingerprint)


GATES = [Gate(scope=SHARED, dialect=name) for name in DIALECTS]


# ---- fingerprints ------------------------------------------------------------------------------------------------

PRINTERS = (
    Fingerprinter(),
    Fingerprinter(content_type=False, exclude=frozenset({"/sent_at", "/a/0"})),
    Fingerprinter(canonical=False),
    Fingerprinter(secrets={7: b"s" * 16}),
)


def fingerprint(data: bytes) -> None:
    """A fingerprint is its request's, also when stored; a request that differs in one part has another."""
    parts = _parts(data)
    for printer in PRINTERS:
        stored = printer.encoded(parts)
        made = Fingerprint.decode(stored)
        assert made == printer.compute(parts), "the short way and the whole one disagree"
        assert made.encode() == stored
        assert printer.matches_request(made, parts)
        for other in _others(parts):
            assert not printer.matches_request(made, other), f"{other} passes for {parts}"


def _parts(data: bytes) -> Parts:
    method, path, query, content_type, *body = [*data.split(b"\0", 4), b"", b"", b"", b"", b""][:5]
    return Parts(method.decode("latin-1"), path.decode("latin-1"), query, content_type, b"".join(body))


def _others(parts: Parts) -> list[Parts]:
    """What moves a byte from one part to the next, or adds one, in parts that every recipe covers."""
    others = [parts._replace(method=parts.method + "X"), parts._replace(query=parts.query + b"x")]
    if parts.path:
        others.append(parts._replace(method=parts.method + parts.path[:1], path=parts.path[1:]))
    if parts.query:
        others.append(parts._replace(path=parts.path + chr(parts.query[0]), query=parts.query[1:]))
    return others


def stored_fingerprint(data: bytes) -> None:
    """What is decoded is what was encoded, to the byte; everything else is refused."""
    try:
        found = Fingerprint.decode(data)
    except RecordUnreadable:
        return
    assert found.encode() == data


def canonical(data: bytes) -> None:
    """The canonical form means what the text means, is its own, and is RFC 8785's where both accept."""
    found = jcs.canonical(data)
    if found is None:
        return
    assert jcs.canonical(found) == found, "the canonical form has another one"
    try:
        meaning = _meaning(data)
    except InvalidOperation:  # an exponent that is too long even for a Decimal
        return
    assert _meaning(found) == meaning, "the canonical form means something else"
    try:
        standard = rfc8785.dumps(json.loads(data))
    except (rfc8785.CanonicalizationError, ValueError, RecursionError):
        return
    assert jcs.canonical(data, rounding=True) == standard


def _meaning(text: bytes) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


# ---- what stores keep --------------------------------------------------------------------------------------------


def stored_record(data: bytes) -> None:
    """A record of another id, version or length is refused; what is read is written and read back the same."""
    try:
        found = record.decode(ID, data)
    except UNREADABLE:
        return
    assert found.id == ID
    _same_again(found, record.decode(ID, record.encode(found)))


def redis_card(data: bytes) -> None:
    """The same in the layout that Redis' scripts read."""
    try:
        found = layout.decode(ID, data)
    except UNREADABLE:
        return
    assert found.id == ID
    card = layout.NO_TIME if found.expires_at is None else found.expires_at.to_bytes(6, "big")
    _same_again(found, layout.decode(ID, card + layout.encode(found)))


def _same_again(found: record.Record, again: record.Record) -> None:
    # Labels and notes are cut at a length, which bytes that are no text can outgrow when they are replaced.
    assert _bare(found) == _bare(again)
    texts = (*found.label, found.note)
    if "\ufffd" not in "".join(texts) and max(map(len, map(str.encode, texts))) <= 255:
        assert found == again


def _bare(found: record.Record) -> record.Record:
    return found._replace(label=record.NO_LABEL, note="")


def stored_outcome(data: bytes) -> None:
    """An outcome is one of the four kinds, and the same when it is written and read again."""
    try:
        found = outcome.unpack(data)
    except RecordUnreadable:
        return
    if isinstance(found, outcome.Answer):
        again = outcome.unpack(outcome.pack(*found))
    elif isinstance(found, outcome.Tombstone):
        again = outcome.unpack(outcome.tombstone(*found))
    elif isinstance(found, outcome.Value):
        again = outcome.unpack(outcome.pack_value(found.data))
    else:
        again = journal.read_journal(journal.pack_journal(found))
    assert again == found
    try:
        trail = outcome.trail_of(data)
    except RecordUnreadable:  # whoever wants no trail need not fail on it
        return
    assert outcome.trail_of(outcome.sign(outcome.pack_value(b""), trail)) == trail


def stored_journal(data: bytes) -> None:
    """A journal is read whole or not at all, and is the same when it is written and read again."""
    try:
        found = journal.read_journal(data)
    except RecordUnreadable:
        return
    assert journal.read_journal(journal.pack_journal(found)) == found


def sealed(data: bytes) -> None:
    """What was sealed opens, for its own id alone and unchanged; what was not sealed under a ring never opens there."""
    for ring in RINGS:
        kept = ring.seal(ID, data)
        assert ring.open(ID, kept) == data
        if ring is RINGS[0]:
            continue
        assert _opened(ring, ID, data) is None, "bytes that nobody has sealed were opened"
        assert _opened(ring, bytes(20), kept) is None, "an outcome was opened for another record"
        at = len(data) % len(kept)
        assert _opened(ring, ID, kept[:at] + bytes((kept[at] ^ 1,)) + kept[at + 1 :]) is None, f"byte {at} was changed"
    plain = _opened(RINGS[0], ID, data)
    assert plain is None or len(plain) <= max(LARGEST, len(data))


def _opened(ring: Sealer, id_: bytes, data: bytes) -> bytes | None:
    try:
        return ring.open(id_, data)
    except UNREADABLE:
        return None


# ---- replays -----------------------------------------------------------------------------------------------------


def replayed(data: bytes) -> None:
    """Whatever a store holds, a replay is one message to whoever reads it, with its headers and body, or none."""
    try:
        found = outcome.unpack(data)
        reply = replay(DIALECTS["ietf"], found, key="k")
    except UNREADABLE:
        return
    status, headers, body = heard(reply)
    assert status == reply.status
    assert body == reply.body
    told = [(name.lower(), value.strip(b" \t")) for name, value in reply.headers]
    assert [header for header in headers if header[0] != b"content-length"] == [
        header for header in told if header[0] != b"content-length"
    ]


def heard(reply: Reply) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """The reply as a client reads it that goes on to use the connection: what is behind it would be a second answer."""
    lines = [b"%s: %s\r\n" % header for header in reply.headers]
    if not any(name.lower() == b"content-length" for name, _ in reply.headers):
        lines.append(b"content-length: %d\r\n" % len(reply.body))
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"HTTP/1.1 %d Status\r\n%s\r\n%s" % (reply.status, b"".join(lines), reply.body))
    first = client.next_event()
    assert isinstance(first, h11.Response), f"no answer, but {first}"
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage), f"the answer does not end: {event}"
    assert client.trailing_data == (b"", False), "something stands behind the answer"
    return first.status_code, [(bytes(name), bytes(value)) for name, value in first.headers], body


TARGETS: dict[str, Target] = {
    target.__name__.replace("_", "-"): target
    for target in (
        key,
        key_in_a_body,
        request,
        fingerprint,
        stored_fingerprint,
        canonical,
        stored_record,
        redis_card,
        stored_outcome,
        stored_journal,
        sealed,
        replayed,
    )
}
