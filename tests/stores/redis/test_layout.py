"""The bytes of a record: they come back as they went in, and what was tampered with is refused or harmless."""

from __future__ import annotations

import contextlib
import secrets

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.record import NO_LABEL, Guarantee, Label, Record, State, replace
from oncekey.core.transitions import settled
from oncekey.errors import RecordForged, RecordUnreadable, StoreError
from oncekey.stores.contract import Store
from oncekey.stores.redis import layout, open_sync
from tests.stores.redis.stand import HOUR, record, settlement, won

INSTANTS = st.integers(1, 2**47)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
RECORDS = st.builds(
    Record,
    id=st.binary(min_size=20, max_size=20),
    state=st.sampled_from(State),
    version=st.integers(1, 2**32 - 1),
    token=st.just(b"") | st.binary(min_size=16, max_size=16).filter(lambda token: any(token[:8])),
    fingerprint=st.binary(max_size=300),
    guarantee=st.sampled_from(Guarantee),
    attempts=st.integers(1, 0xFFFF),
    claimed_at=INSTANTS,
    lease_until=st.none() | INSTANTS,
    due_at=st.none() | INSTANTS,
    expires_at=st.none() | INSTANTS,
    waited=st.booleans(),
    label=st.builds(Label, TEXTS, TEXTS, TEXTS),
    note=TEXTS,
    outcome=st.binary(max_size=300),
)


def on_card(one: Record) -> bytes:
    """What a script answers about this record."""
    return (one.expires_at or 0).to_bytes(6, "big") + layout.encode(one)


def kept(one: Record) -> Record:
    """The record without what the small layout leaves out."""
    if one.state in (State.COMPLETED, State.EXPIRED):
        return replace(one, token=one.token[:8], claimed_at=0, lease_until=None)
    return one


@given(RECORDS)
def test_a_record_comes_back(one: Record) -> None:
    """Every field that a layout keeps comes back as it went in."""
    assert layout.decode(one.id, on_card(one)) == kept(one)


@given(RECORDS, st.binary(min_size=20, max_size=20))
def test_a_record_of_another_key_is_forged(one: Record, other: bytes) -> None:
    """A record under another id is refused, whichever layout it has."""
    if other[:4] == one.id[:4]:
        other = bytes([other[0] ^ 1]) + other[1:]
    with pytest.raises(RecordForged):
        layout.decode(other, on_card(one))


@given(RECORDS, st.data())
def test_tampering_is_refused_or_decodes(one: Record, data: st.DataObject) -> None:
    """Whatever is cut off, added or changed: the reader refuses it with a StoreError, or finds a record."""
    card = bytearray(on_card(one))
    for at in data.draw(st.lists(st.integers(0, len(card) - 1), max_size=4)):
        card[at] = data.draw(st.integers(0, 255))
    tampered = bytes(card[: data.draw(st.integers(0, len(card)))]) + data.draw(st.binary(max_size=4))
    with contextlib.suppress(StoreError):
        assert isinstance(layout.decode(one.id, tampered), Record)


@pytest.mark.parametrize("first", [0, 4, 0x80, 0xFF])
def test_an_unknown_layout_is_refused(first: int) -> None:
    """A record of a layout that this code does not know is refused, never taken for absent."""
    with pytest.raises(RecordUnreadable, match="newer version"):
        layout.decode(bytes(20), bytes(6) + bytes([first]) + bytes(100))


@pytest.mark.parametrize("cut", [1, 40, 90])
def test_a_cut_open_record_is_damaged(cut: int) -> None:
    """An open record that ends too early is refused as damaged."""
    one = Record(bytes(20), State.EXECUTING, 1, b"t" * 16, b"f" * 33)
    with pytest.raises(RecordUnreadable, match="damaged"):
        layout.decode(one.id, on_card(one)[:-cut])


@pytest.mark.parametrize("note", ["", "grüße"])
@pytest.mark.parametrize("due_for", [None, HOUR])
@pytest.mark.parametrize("scope", ["", "95df77a02373"])
def test_scopes_are_kept_on_request(redis_url: str, scope: str, due_for: int | None, note: str) -> None:
    """With scopes=keep a completed record remembers whose it is, whatever else it has; key and endpoint still go."""
    store = open_sync(f"{redis_url}?scopes=keep", store_for=10.0)
    claim = won(store, label=Label(scope, "POST /x", "k"))
    store.settle([settlement(claim, outcome=b"\x00answer", due_for=due_for, note=note)])
    after = record(store, claim.id)
    store.close()
    assert (after.label, after.note, after.outcome) == (Label(scope), note, b"\x00answer")


@pytest.mark.parametrize("target", [State.COMPLETED, State.FAILED_RETRYABLE, State.UNKNOWN])
@pytest.mark.parametrize("version", [1, 254, 255, 70_000])
@pytest.mark.parametrize("size", [0, 33, 255, 256])
def test_scripts_and_reader_agree(store: Store, client: redis.Redis, target: State, version: int, size: int) -> None:
    """What the script writes for a settlement is, byte for byte, what the table's record encodes to."""
    claim = won(store, fingerprint=secrets.token_bytes(size), label=Label("tenant", "POST /x", "k"))
    key = b"{ok}:" + claim.id
    before = replace(record(store, claim.id), version=version, attempts=version % 7 + 1, waited=version == 254)
    client.set(key, layout.encode(before))
    wanted = settlement(claim, target, due_for=5, note="grüße", outcome=b"\x00" * 20)
    store.settle([wanted])
    found = client.get(key)
    after = record(store, claim.id)
    assert after.due_at is not None
    expected = settled(before, wanted, after.due_at - 5)
    assert expected is not None
    if target is State.COMPLETED:
        expected = replace(expected, label=NO_LABEL)
    assert found == layout.encode(expected)
    assert after == kept(expected)


def test_memory_of_a_finished_request(store: Store, client: redis.Redis) -> None:
    """A finished small request takes 250 bytes at most, by MEMORY USAGE; other allocators may round it up further."""
    claim = won(store, label=Label("a" * 32, "POST /v2/payments", secrets.token_hex(16)))
    store.settle([settlement(claim, outcome=secrets.token_bytes(105), keep_for=24 * HOUR)])
    size = client.memory_usage(b"{ok}:" + claim.id)
    assert size is not None
    assert size <= 250
