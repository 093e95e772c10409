"""How a record lies in Redis: two layouts, both read in place by the scripts.

An open or failed record has all its fields at fixed offsets (counted from 0; scripts count from 1):

    0 layout 1    2 version    12 claimed   19 guarantee   22 id    32 expires   54 lengths of fingerprint, scope,
    1 state       6 lease      18 waited    20 attempts    26 due   38 token        endpoint, key, note, outcome

then these six parts. Instants take 6 bytes, milliseconds of the server's clock, 0 for none. `id` is the first four
bytes of the record's id: a reply that was meant for another record is recognised.

A completed or expired record is kept for long and in great numbers. It keeps what repeats need, and the server deletes
it by itself, so that `expires_at` needs no bytes:

    0 layout: 2 completed, 3 expired   1 flags   2 id   6 first half of the token   14 version, length of fingerprint

then, where a flag says so, due (6), attempts (2), length of the note (2), lengths of scope, endpoint and key (2 each);
then fingerprint, note, scope, endpoint, key; the rest is the outcome. Flags: 1 and 2 guarantee, 4 waited, 8 due,
16 attempts other than one, 32 note, 64 label, 128 version and length take 4 and 2 bytes instead of 1 and 1. A record
that its owner completes forgets its label and when it was claimed; with `scopes=keep` in the address it keeps of its
label the scope.
"""

from __future__ import annotations

import struct
from struct import Struct

from oncekey.core.commands import Claim, Renewal, Settlement
from oncekey.core.record import NO_LABEL, Guarantee, Label, Record, State
from oncekey.errors import RecordForged, RecordUnreadable

OPEN, COMPLETED, EXPIRED = 1, 2, 3

HEAD = Struct(">BBI6s6sBBH4s6s6s16sHHHHHI")
SETTLEMENT = Struct(">16sB6s6sH")
RENEWAL = Struct(">16s6s6sB")
# What a renewal wishes beside the lease, in its last byte: to begin is 1, and a journal behind it is
JOURNAL = 2
# What scripts answer: DONE for what they wrote, else a card: when the server deletes the key, then the record.
WRITTEN = 1
CARD = 6

GUARANTEE, WAITED, DUE, ATTEMPTS, NOTE, LABEL, WIDE = 3, 4, 8, 16, 32, 64, 128
NARROW_LIMIT = 0xFF
OPTIONS = DUE | ATTEMPTS | NOTE | LABEL

TEXT_LIMIT = 1000
TOKEN_KEPT = 8
NO_TIME = bytes(6)
NO_TOKEN = bytes(16)
NEVER = 0xFFFFFFFFFFFF
NO_END = NEVER.to_bytes(6, "big")

GUARANTEES = {int(guarantee): guarantee for guarantee in Guarantee}
STATES = {int(state): state for state in State}


def encode_claim(claim: Claim) -> bytes:
    """The record that a claim makes; the script puts in the times. The lease's length stands where its end will."""
    scope, endpoint, key = (_text(part) for part in claim.label)
    fingerprint = claim.fingerprint
    head = HEAD.pack(
        OPEN,
        claim.state,
        1,
        claim.lease_for.to_bytes(6, "big"),
        NO_TIME,
        0,
        claim.guarantee,
        1,
        claim.id[:4],
        NO_TIME,
        NO_TIME,
        claim.token,
        len(fingerprint),
        len(scope),
        len(endpoint),
        len(key),
        0,
        0,
    )
    return b"".join((head, fingerprint, scope, endpoint, key))


def encode_settlement(settlement: Settlement) -> bytes:
    """What the script `settle` reads."""
    note = _text(settlement.note)
    head = SETTLEMENT.pack(
        settlement.token, settlement.target, _lasting(settlement.keep_for), _lasting(settlement.due_for), len(note)
    )
    return b"".join((head, note, settlement.outcome))


def encode_renewal(renewal: Renewal) -> bytes:
    """What the script `renew` reads."""
    lease_for, cap_for = renewal.lease_for.to_bytes(6, "big"), _lasting(renewal.cap_for)
    wishes = renewal.begin | (JOURNAL if renewal.outcome is not None else 0)
    return RENEWAL.pack(renewal.token, lease_for, cap_for, wishes) + (renewal.outcome or b"")


def encode(record: Record) -> bytes:
    """A whole record."""
    if record.state in (State.COMPLETED, State.EXPIRED):
        return _encode_small(record)
    label = [_text(part) for part in record.label]
    note = _text(record.note)
    head = HEAD.pack(
        OPEN,
        record.state,
        record.version,
        _instant(record.lease_until),
        _instant(record.claimed_at),
        record.waited,
        record.guarantee,
        min(record.attempts, 0xFFFF),
        record.id[:4],
        _instant(record.due_at),
        _instant(record.expires_at),
        record.token or NO_TOKEN,
        len(record.fingerprint),
        *map(len, label),
        len(note),
        len(record.outcome),
    )
    return b"".join((head, record.fingerprint, *label, note, record.outcome))


def _encode_small(record: Record) -> bytes:
    flags = int(record.guarantee) | (WAITED if record.waited else 0)
    options: list[bytes] = []
    texts: list[bytes] = []
    if record.due_at is not None:
        flags |= DUE
        options.append(_instant(record.due_at))
    if record.attempts != 1:
        flags |= ATTEMPTS
        options.append(_short(min(record.attempts, 0xFFFF)))
    if record.note:
        flags |= NOTE
        texts.append(_text(record.note))
    if record.label != NO_LABEL:
        flags |= LABEL
        texts += map(_text, record.label)
    options += [_short(len(text)) for text in texts]
    size = len(record.fingerprint)
    if record.version > NARROW_LIMIT or size > NARROW_LIMIT:
        flags |= WIDE
        counts = record.version.to_bytes(4, "big") + _short(size)
    else:
        counts = bytes((record.version, size))
    layout = COMPLETED if record.state is State.COMPLETED else EXPIRED
    token = (record.token or NO_TOKEN)[:TOKEN_KEPT]
    head = (bytes((layout, flags)), record.id[:4], token, counts)
    return b"".join((*head, *options, record.fingerprint, *texts, record.outcome))


def decode(id_: bytes, card: bytes) -> Record:
    """The record on a card; refused if it is of another version, damaged, or of another id."""
    layout = card[CARD] if len(card) > CARD else 0
    try:
        if layout in (COMPLETED, EXPIRED):
            return _decode_small(id_, card, layout)
        if layout == OPEN:
            return _decode_open(id_, card)
    except (struct.error, IndexError, KeyError, ValueError) as damaged:
        raise RecordUnreadable(f"the record is damaged: {damaged}") from damaged
    raise RecordUnreadable(f"a record of layout {layout} is not known here: a newer version wrote it?")


def _decode_open(id_: bytes, card: bytes) -> Record:
    fields = HEAD.unpack_from(card, CARD)
    _, state, version, lease, claimed, waited, guarantee, attempts, check, due, expires, token, *sizes = fields
    if check != id_[:4]:
        raise RecordForged("the record belongs to another key")
    at = CARD + HEAD.size
    if len(card) != at + sum(sizes):
        raise ValueError(f"it has {len(card) - CARD} bytes, its head says {at - CARD + sum(sizes)}")
    if state in (State.COMPLETED, State.EXPIRED):
        raise ValueError(f"state {state} has another layout")
    fingerprint, scope, endpoint, key, note, outcome = _cut(card, at, sizes)
    return Record(
        id_,
        STATES[state],
        version,
        b"" if token == NO_TOKEN else token,
        fingerprint,
        GUARANTEES[guarantee],
        attempts,
        int.from_bytes(claimed, "big"),
        int.from_bytes(lease, "big") or None,
        int.from_bytes(due, "big") or None,
        int.from_bytes(expires, "big") or None,
        bool(waited),
        Label(_string(scope), _string(endpoint), _string(key)),
        _string(note),
        outcome,
    )


def _decode_small(id_: bytes, card: bytes, layout: int) -> Record:
    flags = card[7]
    if card[8:12] != id_[:4]:
        raise RecordForged("the record belongs to another key")
    token = card[12:20]
    if flags & WIDE:
        version, size, at = int.from_bytes(card[20:24], "big"), int.from_bytes(card[24:26], "big"), 26
    else:
        version, size, at = card[20], card[21], 22
    due_at, attempts, note, label = None, 1, "", NO_LABEL
    if len(card) < at:
        raise ValueError("it ends within its head")
    if not flags & OPTIONS:
        fingerprint, outcome = card[at : at + size], card[at + size :]
    else:
        due_at, attempts, sizes, at = _options(flags, card, at)
        fingerprint, *texts, outcome = _cut(card, at, (size, *sizes, len(card)))
        if flags & NOTE:
            note = _string(texts.pop(0))
        if flags & LABEL:
            label = Label(*map(_string, texts))
    if len(fingerprint) != size:
        raise ValueError("it ends within the fingerprint")
    return Record(
        id_,
        State.COMPLETED if layout == COMPLETED else State.EXPIRED,
        version,
        b"" if token == bytes(TOKEN_KEPT) else token,
        fingerprint,
        GUARANTEES[flags & GUARANTEE],
        attempts,
        0,
        None,
        due_at,
        int.from_bytes(card[:CARD], "big") or None,
        flags & WAITED > 0,
        label,
        note,
        outcome,
    )


def _options(flags: int, card: bytes, at: int) -> tuple[int | None, int, tuple[int, ...], int]:
    """When due, how many attempts, and the sizes of note and label; then where the parts begin."""
    due_at, attempts = None, 1
    if flags & DUE:
        due_at = int.from_bytes(card[at : at + 6], "big")
        at += 6
    if flags & ATTEMPTS:
        attempts = int.from_bytes(card[at : at + 2], "big")
        at += 2
    if len(card) < at:
        raise ValueError("it ends within its head")
    count = (1 if flags & NOTE else 0) + (3 if flags & LABEL else 0)
    sizes = Struct(f">{count}H").unpack_from(card, at)
    return due_at, attempts, sizes, at + 2 * count


def _cut(data: bytes, start: int, sizes: tuple[int, ...] | list[int]) -> list[bytes]:
    parts = []
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    return parts


def whole_token(token: bytes) -> bytes:
    """A token, or what a completed record has kept of it, as the scripts compare it."""
    return token.ljust(len(NO_TOKEN), b"\0")


def _text(text: str) -> bytes:
    # Texts are for people. What cannot be written is replaced; what is too long ends at a whole character.
    data = text.encode("utf-8", "replace")
    return data if len(data) <= TEXT_LIMIT else data[:TEXT_LIMIT].decode("utf-8", "ignore").encode()


def _string(data: bytes) -> str:
    return data.decode("utf-8", "replace") if data else ""


def _short(number: int) -> bytes:
    return number.to_bytes(2, "big")


def _instant(at: int | None) -> bytes:
    return at.to_bytes(6, "big") if at else NO_TIME


def _lasting(for_: int | None) -> bytes:
    return NO_END if for_ is None else min(for_, NEVER - 1).to_bytes(6, "big")
