from __future__ import annotations

import base64
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from oncekey.engine.sealing import Sealer, parse_seal_keys
from oncekey.errors import ConfigurationError, MissingExtra, RecordForged, RecordUnreadable

ID, OTHER = b"i" * 20, b"j" * 20
OLD, NEW = bytes(range(32)), bytes(range(32, 64))
RING = {"k2": NEW, "k1": OLD}
LONG = json.dumps([{"id": n, "amount": n * 100, "currency": "EUR"} for n in range(500)]).encode()


def keyed(**choices: object) -> Sealer:
    """A sealer with a ring of two keys."""
    return Sealer(keys=RING, current="k2", **choices)  # type: ignore[arg-type]


@given(st.binary(max_size=3000), st.booleans())
def test_what_was_sealed_opens(data: bytes, encrypted: bool) -> None:
    """Compressed or not, encrypted or not, the outcome is the same afterwards."""
    sealer = keyed() if encrypted else Sealer()
    assert sealer.open(ID, sealer.seal(ID, data)) == data


def test_a_small_plain_outcome_costs_one_byte() -> None:
    """Most outcomes are small; they are stored as they are."""
    assert Sealer().seal(ID, b"small") == b"\x10small"


def test_a_long_outcome_is_compressed_where_that_helps() -> None:
    """Text shrinks; what is random already is left alone."""
    noise = os.urandom(5000)
    assert len(Sealer().seal(ID, LONG)) < len(LONG) / 3
    assert Sealer().seal(ID, noise) == b"\x10" + noise
    assert Sealer(compress_above=None).seal(ID, LONG) == b"\x10" + LONG


def test_an_encrypted_outcome_shows_nothing_of_itself() -> None:
    """A dump holds neither the text nor anything that repeats."""
    one, two = keyed().seal(ID, b"card 4242424242424242"), keyed().seal(ID, b"card 4242424242424242")
    assert b"4242" not in one
    assert one != two
    assert one[4:16] != two[4:16]


def test_swapped_rows_are_recognised() -> None:
    """An outcome belongs to its record: under another id it does not open."""
    with pytest.raises(RecordForged):
        keyed().open(OTHER, keyed().seal(ID, b"answer"))


@pytest.mark.parametrize("long", [False, True])
def test_every_changed_byte_is_recognised(long: bool) -> None:
    """Seal format, key id, nonce, text and tag are all authenticated; nothing else but our two errors is raised."""
    sealed = keyed().seal(ID, LONG if long else b"answer")
    for at in range(0, len(sealed), 1 + len(sealed) // 80):
        changed = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
        with pytest.raises((RecordForged, RecordUnreadable)):
            keyed().open(ID, changed)


def test_an_unsealed_outcome_is_refused_where_there_are_keys() -> None:
    """Whoever can write to the store could otherwise replace a sealed answer by a plain one."""
    for plain in (Sealer().seal(ID, b"answer"), Sealer().seal(ID, LONG)):
        with pytest.raises(RecordUnreadable, match="accept_plain"):
            keyed().open(ID, plain)
    assert keyed(accept_plain=True).open(ID, Sealer().seal(ID, b"answer")) == b"answer"
    assert keyed(accept_plain=True).open(ID, Sealer().seal(ID, LONG)) == LONG


def test_keys_can_be_changed() -> None:
    """New outcomes take the current key; old ones open with theirs as long as it is in the ring."""
    old = Sealer(keys={"k1": OLD}).seal(ID, b"answer")
    assert keyed().open(ID, old) == b"answer"
    assert keyed().seal(ID, b"answer")[2:4] == b"k2"
    with pytest.raises(RecordUnreadable, match="'k1'"):
        Sealer(keys={"k2": NEW}).open(ID, old)
    with pytest.raises(RecordUnreadable, match="'k1'"):
        Sealer().open(ID, old)
    with pytest.raises(RecordForged, match="'k1'"):
        Sealer(keys={"k1": NEW}).open(ID, old)


def test_a_decompression_bomb_is_refused_before_it_unpacks() -> None:
    """A frame says its size first, and above the limit nothing is unpacked; a frame that hides it is refused."""
    bomb = b"\x11" + zstandard.ZstdCompressor().compress(bytes(10_000))
    hidden = b"\x11" + zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000))
    assert Sealer(largest=10_000).open(ID, bomb) == bytes(10_000)
    for data in (bomb, hidden):
        with pytest.raises(RecordUnreadable, match="limit"):
            Sealer(largest=9_999).open(ID, data)


@given(
    st.binary(max_size=200).map(lambda tail: tail) | st.binary(max_size=99).map(lambda tail: b"\x11(\xb5/\xfd" + tail)
)
def test_damaged_seals_raise_nothing_but_our_errors(data: bytes) -> None:
    """Whatever stands in the store, the error is RecordUnreadable or RecordForged."""
    for sealer in (Sealer(), keyed(accept_plain=True)):
        try:
            sealer.open(ID, data)
        except (RecordUnreadable, RecordForged):
            continue


def test_without_zstd_nothing_is_compressed_and_compressed_outcomes_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A missing package may cost room, never an answer that was written."""
    packed = Sealer().seal(ID, LONG)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert Sealer().seal(ID, LONG) == b"\x10" + LONG
    with pytest.raises(RecordUnreadable, match=r"pip install 'oncekey\[zstd\]'"):
        Sealer().open(ID, packed)


def test_without_cryptography_keys_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is said when the sealer is made, not at the first payment."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(MissingExtra, match=r"pip install 'oncekey\[encryption\]'"):
        keyed()


def test_threads_may_share_a_sealer() -> None:
    """The contexts of the compressor are not shared between them."""
    sealer = keyed()

    def roundtrip(number: int) -> bool:
        data = LONG + b"%d" % number
        return sealer.open(ID, sealer.seal(ID, data)) == data

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(roundtrip, range(400)))


def test_the_ring_is_read_from_text() -> None:
    """The first key is the current one; both alphabets of base64 are read; `plain` at the end allows the move."""
    text = f"k2:{base64.urlsafe_b64encode(NEW).decode()} , k1:{base64.b64encode(OLD).decode().rstrip('=')},plain"
    ring = parse_seal_keys(text)
    assert (dict(ring.keys), ring.current, ring.accept_plain) == (RING, "k2", True)
    assert Sealer.from_text(text).open(ID, keyed().seal(ID, b"answer")) == b"answer"
    assert Sealer.from_text(" ").seal(ID, b"answer") == b"\x10answer"
    assert "AAEC" not in repr(ring)
    assert "\\x01" not in repr(ring)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("k1", "part 1"),
        ("k1:AAAA", "3 bytes"),
        (f"k1:{base64.b64encode(OLD).decode()},", "part 2"),
        ("k1:!!!", "base64"),
        ("k 1:AAAA", "part 1"),
        (",".join([f"k1:{base64.b64encode(OLD).decode()}"] * 2), "twice"),
    ],
)
def test_a_bad_ring_is_refused_without_repeating_a_key(text: str, says: str) -> None:
    """The message names the part and what to write, and no secret."""
    with pytest.raises(ConfigurationError, match=says) as refused:
        parse_seal_keys(text)
    assert "ONCEKEY_SEAL_KEYS" in str(refused.value)
    assert base64.b64encode(OLD).decode() not in str(refused.value)


@pytest.mark.parametrize(
    "choices",
    [
        {"keys": RING},
        {"keys": RING, "current": "k3"},
        {"current": "k1"},
        {"keys": {"k1": b"short"}},
        {"keys": {"k,1": OLD}},
        {"compress_above": -1},
        {"largest": 0},
    ],
)
def test_a_sealer_that_cannot_work_is_refused(choices: dict) -> None:
    """Bad choices are said at construction."""
    with pytest.raises(ConfigurationError):
        Sealer(**choices)
