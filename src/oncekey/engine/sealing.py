"""Outcomes as a store may see them: plain, compressed, or encrypted so that rows can be neither read nor swapped.

The first byte says what was done; after it come, where there is encryption, the id of the key and a nonce:

    0x10  as it is         0x11  compressed
    0x12  encrypted        0x13  compressed, then encrypted

Encryption is AES-256-GCM under a key of the record's own, derived from the ring's key and the record's id, so that the
number of records under one ring key has no limit. Id, key id and first byte are authenticated: a row that was moved or
changed is RecordForged.

A ring has several keys so that they can be changed: new outcomes take the current one, old ones are opened with theirs.
Written in an environment variable, the current key first:

    ONCEKEY_SEAL_KEYS="k2:base64 of 32 bytes,k1:base64 of 32 bytes"

The word `plain` at its end lets outcomes pass that were written before there were keys; drop it when they have expired.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol, cast

from oncekey.errors import ConfigurationError, MissingExtra, RecordForged, RecordUnreadable

_FORMAT, _COMPRESSED, _ENCRYPTED = 0x10, 0x01, 0x02
_PLAIN = b"\x10"
_KEY_LENGTH = 32
_NONCE_LENGTH = 12
# zstd's own default: higher levels cost much and gain little on answers of some kilobytes.
_LEVEL = 3

# No outcome is larger than this, whatever a compressed one claims to hold.
LARGEST = 64 << 20

VARIABLE = "ONCEKEY_SEAL_KEYS"
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")
_EXAMPLE = "make one by python -c 'import base64, os; print(base64.b64encode(os.urandom(32)).decode())'"


@dataclass(frozen=True, slots=True)
class SealKeys:
    """A ring: keys by id, the id of the current one, and whether outcomes without a seal may pass."""

    keys: Mapping[str, bytes] = field(repr=False)
    current: str | None
    accept_plain: bool


def parse_seal_keys(text: str) -> SealKeys:
    """Read the ring from text, as it stands in ONCEKEY_SEAL_KEYS. Errors never repeat a key."""
    keys: dict[str, bytes] = {}
    parts = [part.strip() for part in text.split(",")]
    accept_plain = parts[-1] == "plain"
    for number, part in enumerate(parts[:-1] if accept_plain else parts, 1):
        name, colon, encoded = part.partition(":")
        if not colon or not _KEY_ID.fullmatch(name):
            raise ConfigurationError(
                f"{VARIABLE}: part {number} is no `id:key`: write an id of letters, digits, '.', '_' or '-', a colon, "
                f"and the base64 of 32 bytes; {_EXAMPLE}"
            )
        if name in keys:
            raise ConfigurationError(f"{VARIABLE}: the id {name} stands there twice: give every key an id of its own")
        keys[name] = _decoded(name, encoded)
    return SealKeys(keys, next(iter(keys), None), accept_plain)


def _decoded(name: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded.replace("-", "+").replace("_", "/") + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigurationError(f"{VARIABLE}: the key {name} is no base64; {_EXAMPLE}") from None
    if len(key) != _KEY_LENGTH:
        raise ConfigurationError(f"{VARIABLE}: the key {name} has {len(key)} bytes, not 32; {_EXAMPLE}")
    return key


class Sealer:
    """Seals and opens outcomes. Safe to share between threads.

    compress_above: outcomes of more bytes are compressed where that helps; None: never.
    keys, current: the ring, and the id of the key for new outcomes; without keys nothing is encrypted.
    accept_plain: with keys, open outcomes that have no seal too. They could have been written by anybody.
    largest: an outcome that claims to unpack to more bytes is refused.
    """

    def __init__(
        self,
        compress_above: int | None = 1024,
        keys: Mapping[str, bytes] | None = None,
        current: str | None = None,
        *,
        accept_plain: bool = False,
        largest: int = LARGEST,
    ) -> None:
        if compress_above is not None and compress_above < 0:
            raise ConfigurationError(f"compress_above={compress_above}: write a number of bytes, or None for never")
        if largest < 1:
            raise ConfigurationError(f"largest={largest}: write a number of bytes above 0")
        self._keys = dict(keys or {})
        self._current = _checked_ring(self._keys, current)
        self._compress_above = float("inf") if compress_above is None else compress_above
        self._accept_plain = accept_plain or not self._keys
        self._largest = largest
        self._zstd = _Zstd()
        if self._keys:  # a missing package is said now, not at the first payment
            self._cipher, self._invalid = _aes_gcm()

    @classmethod
    def from_text(cls, text: str, compress_above: int | None = 1024) -> Sealer:
        """A sealer with the ring that ONCEKEY_SEAL_KEYS holds; an empty text means no encryption."""
        if not text.strip():
            return cls(compress_above)
        ring = parse_seal_keys(text)
        return cls(compress_above, ring.keys, ring.current, accept_plain=ring.accept_plain)

    def seal(self, id: bytes, packed: bytes) -> bytes:  # noqa: A002 - as in the record
        """An outcome as the store gets it."""
        if len(packed) <= self._compress_above:
            return self._encrypt(id, _FORMAT, packed) if self._current is not None else _PLAIN + packed
        form = _FORMAT
        smaller = self._zstd.compress(packed)
        # To save less than an eighth is not worth the work of every replay.
        if smaller is not None and len(smaller) * 8 < len(packed) * 7:
            form, packed = _FORMAT | _COMPRESSED, smaller
        return self._encrypt(id, form, packed) if self._current is not None else bytes((form,)) + packed

    def open(self, id: bytes, data: bytes) -> bytes:  # noqa: A002
        """The outcome that was sealed for this id; RecordForged if it was not, RecordUnreadable if none can tell."""
        form = data[0] if data else -1
        if form == _FORMAT and self._accept_plain:
            return data[1:]
        if form not in range(_FORMAT, _FORMAT + 4):
            found = "is empty" if form < 0 else f"has seal format {form:#04x}"
            raise RecordUnreadable(f"the stored outcome {found}, which this version cannot read")
        if form & _ENCRYPTED:
            packed = self._decrypt(id, data)
        elif self._accept_plain:
            packed = data[1:]
        else:
            raise RecordUnreadable(
                "the stored outcome is not encrypted, though there are keys: if it is older than they are, allow "
                f"accept_plain=True (the word `plain` at the end of {VARIABLE}) until such outcomes have expired"
            )
        return self._zstd.decompress(packed, self._largest) if form & _COMPRESSED else packed

    def _encrypt(self, id_: bytes, form: int, packed: bytes) -> bytes:
        name = cast("str", self._current)
        head = bytes((form | _ENCRYPTED, len(name))) + name.encode()
        nonce = os.urandom(_NONCE_LENGTH)
        sealed: bytes = self._cipher(_own_key(self._keys[name], id_)).encrypt(nonce, packed, head + id_)
        return head + nonce + sealed

    def _decrypt(self, id_: bytes, data: bytes) -> bytes:
        end = 2 + data[1] if len(data) > 1 else len(data)
        head, nonce, sealed = data[:end], data[end : end + _NONCE_LENGTH], data[end + _NONCE_LENGTH :]
        name = head[2:].decode("ascii", "replace")
        if len(nonce) < _NONCE_LENGTH or not _KEY_ID.fullmatch(name):
            raise RecordUnreadable("the stored outcome is damaged: its seal is cut short")
        key = self._keys.get(name)
        if key is None:
            raise RecordUnreadable(f"the stored outcome is sealed with the key {name!r}: add it to {VARIABLE}")
        try:
            return cast("bytes", self._cipher(_own_key(key, id_)).decrypt(nonce, sealed, head + id_))
        except self._invalid:
            raise RecordForged(
                f"the stored outcome fails its seal: it was changed, or moved from another record, or {name!r} is now "
                "another key than the one it was sealed with"
            ) from None


def _checked_ring(keys: Mapping[str, bytes], current: str | None) -> str | None:
    for name, key in keys.items():
        if not _KEY_ID.fullmatch(name):
            raise ConfigurationError(f"keys: {name!r} is no id: write up to 32 letters, digits, '.', '_' or '-'")
        if len(key) != _KEY_LENGTH:
            raise ConfigurationError(f"keys: the key {name} has {len(key)} bytes: write 32, os.urandom(32) for example")
    if current is None and len(keys) > 1:
        raise ConfigurationError(f"there are several keys: write current=, the id for new outcomes: {', '.join(keys)}")
    if current is not None and current not in keys:
        raise ConfigurationError(f"current={current!r} is no id of keys=: {', '.join(keys) or 'there are no keys'}")
    return next(iter(keys), None) if current is None else current


def _own_key(key: bytes, id_: bytes) -> bytes:
    return hashlib.blake2b(id_, key=key, digest_size=_KEY_LENGTH, person=b"oncekey seal 1").digest()


def _aes_gcm() -> tuple[Any, type[Exception]]:
    try:
        cipher = import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        return cipher, import_module("cryptography.exceptions").InvalidTag
    except ModuleNotFoundError as missing:
        raise MissingExtra("encryption of stored outcomes", "encryption") from missing


# ---- zstd, from the standard library (3.14) or from the package --------------------------------------------------


class _Codec(Protocol):
    def compress(self, data: bytes) -> bytes: ...
    def decompress(self, data: bytes, limit: int) -> bytes: ...


class _Zstd(threading.local):
    """A codec for each thread: the contexts of zstandard may not be shared."""

    def __init__(self) -> None:
        self._codec = _codec()

    def compress(self, data: bytes) -> bytes | None:
        """The data compressed; None where no package can."""
        return self._codec.compress(data) if self._codec is not None else None

    def decompress(self, data: bytes, limit: int) -> bytes:
        """The data as it was, if that is not larger than the limit."""
        if self._codec is None:
            raise RecordUnreadable("the stored outcome is compressed; to read it: pip install 'oncekey[zstd]'")
        return self._codec.decompress(data, limit)


def _codec() -> _Codec | None:
    for module, codec in (("compression.zstd", _Standard), ("zstandard", _Package)):
        try:
            return codec(import_module(module))
        except ModuleNotFoundError:
            continue
    return None


class _Standard:
    """compression.zstd."""

    def __init__(self, zstd: Any) -> None:
        self._zstd = zstd

    def compress(self, data: bytes) -> bytes:
        packed: bytes = self._zstd.compress(data, _LEVEL)
        return packed

    def decompress(self, data: bytes, limit: int) -> bytes:
        try:
            size = self._zstd.get_frame_info(data).decompressed_size
            _check_size(size, limit)
            reader = self._zstd.ZstdDecompressor()
            found: bytes = reader.decompress(data, size + 1)
        except self._zstd.ZstdError as damaged:
            raise _damaged(damaged) from damaged
        return _whole(found, size, complete=reader.eof and not reader.unused_data)


class _Package:
    """zstandard."""

    def __init__(self, zstandard: Any) -> None:
        self._error = zstandard.ZstdError
        self._parameters = zstandard.get_frame_parameters
        self._unknown = zstandard.CONTENTSIZE_UNKNOWN
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def compress(self, data: bytes) -> bytes:
        packed: bytes = self._compressor.compress(data)
        return packed

    def decompress(self, data: bytes, limit: int) -> bytes:
        try:
            size = self._parameters(data).content_size
            _check_size(None if size == self._unknown else size, limit)
            found: bytes = self._decompressor.decompress(data, allow_extra_data=False)
        except self._error as damaged:
            raise _damaged(damaged) from damaged
        return _whole(found, size, complete=True)


def _check_size(size: int | None, limit: int) -> None:
    """A frame says how much it unpacks to, and no more than that is ever unpacked."""
    if size is None or size > limit:
        claim = "an unsaid number of" if size is None else str(size)
        raise RecordUnreadable(f"the stored outcome claims to unpack to {claim} bytes; the limit is {limit}")


def _whole(found: bytes, size: int, *, complete: bool) -> bytes:
    if not complete or len(found) != size:
        raise RecordUnreadable(f"the stored outcome is damaged: it unpacks to {len(found)} bytes of {size}")
    return found


def _damaged(error: Exception) -> RecordUnreadable:
    return RecordUnreadable(f"the stored outcome is damaged: {error}")
