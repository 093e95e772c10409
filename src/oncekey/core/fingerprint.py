"""The fingerprint: a hash of what was asked, to catch a key that is used again for something else.

Two digests: `raw` over the exact bytes, and `canonical` over the RFC 8785 form of a JSON body. A machine's retry is
nearly always the same bytes, so raw is compared first and decides most cases; the canonical form is computed for what
is stored, and again only when raw digests differ. Everything else about a request is in both: method, path, query,
and content type (its exact text in raw, the media type in canonical).

The recipe is one stored byte that says how a fingerprint was made, so that a later configuration can compute the same:

    0x10  version 1, always
    0x01  the content type is covered
    0x02  the canonical form was looked for; an empty `canonical` then means that the body has none
    0x04  keyed: HMAC-SHA256 with the secret whose id is stored behind the recipe

Fields left out by `exclude` are part of the canonical digest's input by name, so fingerprints made under two different
lists match by raw only. Multipart and form bodies have raw digests only.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

from oncekey.core import jcs
from oncekey.errors import ConfigurationError, RecordUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 0x10
CONTENT_TYPE = 0x01
CANONICAL = 0x02
KEYED = 0x04

_KNOWN_RECIPES = range(VERSION, VERSION + 8)
_DIGEST_LENGTH = 16
_LENGTHS = struct.Struct(">6Q").pack
_SECRET_LEAST = 16
_SECRET_IDS = range(1, 256)
_UNKNOWN_RECIPE = "The record's fingerprint has an unknown recipe: a newer version may have written it."

# Other parameters may change what a body means, so they keep a request to its raw digest. RFC 8259 knows no charset,
# but many clients write this one.
_PLAIN_JSON = b"application/json"
_NAME = rb"[a-z0-9!#$&^_.+-]+"
_JSON_TYPE = re.compile(
    rb"[ \t]*(application/json|" + _NAME + rb"/" + _NAME + rb'\+json)[ \t]*(?:;[ \t]*charset="?utf-8"?[ \t]*)?;?',
    re.IGNORECASE,
)


class Parts(NamedTuple):
    """What a request asks for, part by part."""

    method: str
    path: str
    query: bytes
    content_type: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The digests of a request and how they were made. `secret_id` is 0 when no secret was used."""

    recipe: int
    raw: bytes
    canonical: bytes = b""
    secret_id: int = 0

    def encode(self) -> bytes:
        """Return the stored form: recipe, secret id if keyed, raw digest, canonical digest if there is one."""
        head = (self.recipe, self.secret_id) if self.recipe & KEYED else (self.recipe,)
        return bytes(head) + self.raw + self.canonical

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the stored form; RecordUnreadable when it is of an unknown recipe or damaged."""
        if not data or data[0] not in _KNOWN_RECIPES:
            raise RecordUnreadable(_UNKNOWN_RECIPE)
        recipe = data[0]
        start = 2 if recipe & KEYED else 1
        digests = data[start:]
        lengths = (_DIGEST_LENGTH, 2 * _DIGEST_LENGTH) if recipe & CANONICAL else (_DIGEST_LENGTH,)
        if len(digests) not in lengths:
            raise RecordUnreadable(f"The record's fingerprint is damaged: it has {len(data)} bytes.")
        return cls(recipe, digests[:_DIGEST_LENGTH], digests[_DIGEST_LENGTH:], data[1] if start > 1 else 0)


@dataclass(frozen=True, slots=True)
class Fingerprinter:
    """Makes and compares fingerprints as its options say.

    secrets: secrets by id (1 to 255); with one, digests of guessable bodies cannot be matched against a dictionary.
    current: the id of the secret for new fingerprints; the others are kept for records made before a rotation.
    exclude: JSON pointers of volatile fields that a retry may change.
    content_type: whether another content type is another request.
    canonical: whether JSON bodies that mean the same are the same request.
    limit: bodies over this many bytes have no canonical form.
    """

    secrets: Mapping[int, bytes] = field(default_factory=dict, repr=False, hash=False)
    current: int | None = None
    exclude: frozenset[str] = frozenset()
    content_type: bool = True
    canonical: bool = True
    limit: int = 1 << 20
    recipe: int = field(init=False)
    pointers: tuple[jcs.Pointer, ...] = field(init=False, repr=False, compare=False)
    canonical_kind: bytes = field(init=False, repr=False, compare=False)
    head: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "secrets", MappingProxyType(dict(self.secrets)))
        set_field(self, "current", self._chosen_secret())
        if self.limit < 1:
            raise ConfigurationError(
                f"limit={self.limit} leaves no body to canonicalise: write canonical=False instead."
            )
        if self.exclude and not self.canonical:
            raise ConfigurationError("exclude= works on the canonical form: leave canonical=True, or drop exclude=.")
        try:
            pointers = tuple(jcs.parse_pointer(text) for text in sorted(self.exclude))
        except ValueError as error:
            raise ConfigurationError(f'exclude=: {error}. Write "/metadata/sent_at", for example.') from error
        set_field(self, "pointers", pointers)
        without = f" without {sorted(self.exclude)!a}" if self.exclude else ""
        set_field(self, "canonical_kind", b"canonical" + without.encode())
        keyed = KEYED if self.current else 0
        options = (CONTENT_TYPE if self.content_type else 0) | (CANONICAL if self.canonical else 0)
        set_field(self, "recipe", VERSION | options | keyed)
        set_field(self, "head", bytes((self.recipe, self.current) if self.current else (self.recipe,)))

    def _chosen_secret(self) -> int | None:
        for number, secret in self.secrets.items():
            if number not in _SECRET_IDS:
                raise ConfigurationError(f"The secret id {number} is out of range: write a number from 1 to 255.")
            if len(secret) < _SECRET_LEAST:
                raise ConfigurationError(f"Secret {number} is shorter than 16 bytes: write secrets.token_bytes(32).")
        if self.current is None and len(self.secrets) > 1:
            raise ConfigurationError("There are several secrets: write current=, the id of the one for new records.")
        if self.current is not None and self.current not in self.secrets:
            raise ConfigurationError(f"current={self.current} is not among the ids of secrets=.")
        return next(iter(self.secrets), None) if self.current is None else self.current

    def compute(self, parts: Parts) -> Fingerprint:
        """Return the whole fingerprint, as it is stored."""
        if not self.canonical:
            return self.compute_raw(parts)
        recipe, secret_id = self.recipe, self.current or 0
        raw, canonical = self._raw(parts, recipe, secret_id), self._canonical(parts, recipe, secret_id)
        return Fingerprint(recipe, raw, canonical, secret_id)

    def encoded(self, parts: Parts) -> bytes:
        """Return the stored form of `compute`, by the shortest way: every request with a key needs it."""
        recipe, secret_id = self.recipe, self.current or 0
        raw = self._digest(b"raw", parts, parts.content_type if self.content_type else b"", parts.body, secret_id)
        return self.head + raw + self._canonical(parts, recipe, secret_id) if self.canonical else self.head + raw

    def compute_raw(self, parts: Parts) -> Fingerprint:
        """Return the cheap half, enough to recognise a retry with the same bytes."""
        return self._half(parts, self.recipe, self.current or 0)

    def with_canonical(self, half: Fingerprint, parts: Parts) -> Fingerprint:
        """Add the other half to what `compute_raw` returned, if the options ask for it."""
        if not self.canonical:
            return half
        digest = self._canonical(parts, half.recipe, half.secret_id)
        return Fingerprint(half.recipe | CANONICAL, half.raw, digest, half.secret_id)

    def matches_request(self, stored: Fingerprint, parts: Parts, fresh: Fingerprint | None = None) -> bool:
        """Say whether the stored fingerprint is of this request, computing only what is needed, by the stored recipe.

        `fresh` is what `compute_raw` or `compute` returned for the request, if at hand. RecordUnreadable is raised
        when the stored recipe or secret is unknown here: then nobody can say, and nothing may be executed.
        """
        if stored.recipe not in _KNOWN_RECIPES:
            raise RecordUnreadable(_UNKNOWN_RECIPE)
        if fresh is None or not _same_way(stored, fresh):
            fresh = self._half(parts, stored.recipe, stored.secret_id)
        if matches(stored, fresh):
            return True
        if not stored.canonical or fresh.recipe & CANONICAL:
            return False
        return hmac.compare_digest(stored.canonical, self._canonical(parts, stored.recipe, stored.secret_id))

    def _half(self, parts: Parts, recipe: int, secret_id: int) -> Fingerprint:
        return Fingerprint(recipe & ~CANONICAL, self._raw(parts, recipe, secret_id), b"", secret_id)

    def _raw(self, parts: Parts, recipe: int, secret_id: int) -> bytes:
        content_type = parts.content_type if recipe & CONTENT_TYPE else b""
        return self._digest(b"raw", parts, content_type, parts.body, secret_id)

    def _canonical(self, parts: Parts, recipe: int, secret_id: int) -> bytes:
        media_type = parts.content_type
        if media_type != _PLAIN_JSON:
            media_type = _json_media_type(media_type)
        body = jcs.canonical(parts.body, self.limit, exclude=self.pointers) if media_type else None
        if body is None:
            return b""
        if not recipe & CONTENT_TYPE:
            media_type = b""
        return self._digest(self.canonical_kind, parts, media_type, body, secret_id)

    def _digest(self, kind: bytes, parts: Parts, content_type: bytes, body: bytes, secret_id: int) -> bytes:
        method = parts.method.encode("utf-8", "surrogatepass")
        path = parts.path.encode("utf-8", "surrogatepass")
        message = framed(kind, method, path, parts.query, content_type, body)
        if not secret_id:
            return hashlib.sha256(message).digest()[:_DIGEST_LENGTH]
        secret = self.secrets.get(secret_id)
        if secret is None:
            raise RecordUnreadable(
                f"The record's fingerprint was made with secret {secret_id}, which is not among secrets=: "
                "keep a secret until its last records have expired."
            )
        return hmac.digest(secret, message, "sha256")[:_DIGEST_LENGTH]


@dataclass(frozen=True, slots=True)
class Presented:
    """A request and the half of its fingerprint that is at hand, ready to be compared with stored ones."""

    fingerprinter: Fingerprinter
    parts: Parts
    fresh: Fingerprint | None = None

    def same_request(self, stored: bytes) -> bool:
        """Whether the stored form of a fingerprint stands for this request; RecordUnreadable if nobody can say."""
        return self.fingerprinter.matches_request(Fingerprint.decode(stored), self.parts, self.fresh)


def matches(stored: Fingerprint, fresh: Fingerprint) -> bool:
    """Compare two fingerprints as they are, in constant time; False may also mean that recipes differ."""
    if hmac.compare_digest(stored.raw, fresh.raw):
        return True
    if not (stored.canonical and fresh.canonical and _same_way(stored, fresh)):
        return False
    return hmac.compare_digest(stored.canonical, fresh.canonical)


def framed(kind: bytes, method: bytes, path: bytes, query: bytes, content_type: bytes, body: bytes) -> bytes:
    """Join the six parts behind their lengths, so that no two different lists of parts give the same bytes."""
    lengths = _LENGTHS(len(kind), len(method), len(path), len(query), len(content_type), len(body))
    return b"".join((lengths, kind, method, path, query, content_type, body))


def _same_way(a: Fingerprint, b: Fingerprint) -> bool:
    return a.secret_id == b.secret_id and not (a.recipe ^ b.recipe) & ~CANONICAL


def _json_media_type(content_type: bytes) -> bytes:
    found = _JSON_TYPE.fullmatch(content_type)
    return found[1].lower() if found else b""
