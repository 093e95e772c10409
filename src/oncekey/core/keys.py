"""The client's key: what is a well-formed one, and the names under which records are kept and logged.

A key is 1 to 255 characters of visible ASCII (0x21 to 0x7E), as tight as a rule makes it. Three spellings arrive:

    bare, in a header     no comma: servers join two header lines with one, so `a,b` may be two keys ("repeated")
    quoted, in a header   a strict Structured Field String (RFC 9651); `"abc"` is the key `abc`; parameters are ignored
    text, in a JSON body  taken literally, comma and quotes included

Where a provider's dialect says that quotes belong to the key, the rule says `quoting="literal"`. Spaces are refused
in all three: inside quotes the standard allows them, but a key that cannot also be written bare would be another key
to half of the clients. One parser serves all gateways, so that all give the same verdict.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from oncekey.errors import BadKey, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECORD_ID_LENGTH = 20
_PRINCIPAL_LENGTH = 32
_CALLER_LENGTH = 12
_REF_LENGTH = 12

# A Structured Field String with its parameters: keys, then integers, decimals, strings, tokens, byte sequences,
# booleans, dates or display strings.
_STRING = rb'"(?:[ !#-\[\]-~]|\\["\\])*"'
_PARAMETER_VALUE = (
    rb"@?-?[0-9]{1,15}|-?[0-9]{1,12}\.[0-9]{1,3}|" + _STRING + rb"|[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
    rb'|:[A-Za-z0-9+/=]*:|\?[01]|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"'
)
_STRING_ITEM = re.compile(rb"(" + _STRING + rb")(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:" + _PARAMETER_VALUE + rb"))?)*")
_STRING_THEN_COMMA = re.compile(_STRING + rb"[^,]*,")
_ESCAPED = re.compile(rb'\\(["\\])')
_UUID_LENGTH, _ULID_LENGTH = 36, 26
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
# Before 2016 there were none: a number with leading zeros only looks like one, and says nothing of its age.
_FIRST_ULID = 1_451_606_400_000
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SLASHES = re.compile("/{2,}")


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What a dialect accepts as a key; lengths count characters of the key itself, quotes and parameters not."""

    min_length: int = 1
    max_length: int = 255
    quoting: Literal["accept", "literal"] = "accept"
    # The spellings of nearly all keys, in one pattern whose groups hold the key; the rest takes the long way.
    ordinary: re.Pattern[bytes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.min_length <= self.max_length:
            raise ConfigurationError(
                f"A key rule with min_length={self.min_length} and max_length={self.max_length} accepts no key: "
                "write lengths of at least 1, the minimum not above the maximum."
            )
        if self.quoting not in ("accept", "literal"):
            raise ConfigurationError(f'quoting={self.quoting!r} is not known: write "accept" or "literal".')
        length = b"{%d,%d}" % (self.min_length, self.max_length)
        bare = rb"([!-+\--~]" + length + rb")"
        if self.quoting == "accept":
            bare = rb'(?!")' + bare + rb'|"([!#-\[\]-~]' + length + rb')"'
        object.__setattr__(self, "ordinary", re.compile(bare))

    @property
    def advice(self) -> str:
        """What to send, as a sentence."""
        length = (
            f"{self.min_length} to {self.max_length}" if self.min_length < self.max_length else f"{self.max_length}"
        )
        return f"Send one key of {length} visible ASCII characters without spaces, a new UUID for example."

    def refusal(self, rule: str, detail: str) -> BadKey:
        """Make the error for a key that breaks this rule."""
        return BadKey(rule, detail, self.advice)


def parse_key_lines(lines: Sequence[bytes], rule: KeyRule) -> str:
    """Read the key from all values of its header field, one per field line, as they came."""
    if len(lines) == 1 and (ordinary := rule.ordinary.fullmatch(lines[0])):
        return (ordinary[1] or ordinary[2]).decode()
    if not lines:
        raise rule.refusal("missing", "The request has no idempotency key.")
    if len(lines) > 1:
        raise rule.refusal("repeated", f"The idempotency key came {len(lines)} times.")
    # Latin-1 gives every byte one character, so that positions in messages are those of the wire.
    value = lines[0].decode("latin-1").strip(" \t")
    _refuse_foreign_characters(value, rule)
    if rule.quoting == "accept" and value.startswith('"'):
        value = _unquoted(value.encode(), rule)
    elif "," in value:
        raise rule.refusal("repeated", "The idempotency key holds a comma: two header lines may have been joined.")
    return _checked(value, rule)


def parse_key_text(value: object, rule: KeyRule) -> str:
    """Read the key from a member of a JSON body: no quoting there, and no joined header lines."""
    if not isinstance(value, str):
        kind = "missing" if value is None else "type"
        detail = "The request has no idempotency key." if value is None else "The idempotency key is not a string."
        raise rule.refusal(kind, detail)
    _refuse_foreign_characters(value, rule)
    return _checked(value, rule)


def _refuse_foreign_characters(value: str, rule: KeyRule) -> None:
    control = _CONTROL.search(value)
    if control:
        raise rule.refusal("control", f"The idempotency key has a control character at position {control.start() + 1}.")
    if not value.isascii():
        raise rule.refusal("non-ascii", "The idempotency key has characters outside ASCII.")


def _unquoted(value: bytes, rule: KeyRule) -> str:
    item = _STRING_ITEM.fullmatch(value)
    if item:
        return _ESCAPED.sub(rb"\1", item[1][1:-1]).decode()
    if _STRING_THEN_COMMA.match(value):
        raise rule.refusal("repeated", "The idempotency key is a list: two header lines may have been joined.")
    raise rule.refusal(
        "quoting", "The idempotency key starts with a quote but is no Structured Field String (RFC 9651)."
    )


def _checked(key: str, rule: KeyRule) -> str:
    if not key:
        raise rule.refusal("empty", "The idempotency key is empty.")
    if " " in key:
        raise rule.refusal("space", "The idempotency key has a space in it.")
    if len(key) < rule.min_length:
        raise rule.refusal("too-short", f"The idempotency key has {len(key)} characters, fewer than {rule.min_length}.")
    if len(key) > rule.max_length:
        raise rule.refusal("too-long", f"The idempotency key has {len(key)} characters, more than {rule.max_length}.")
    return key


def made_at(key: str) -> int | None:
    """When a key was made, in milliseconds since the epoch, if it is one that says so: a UUIDv7 or a ULID."""
    made = 0
    if len(key) == _UUID_LENGTH and key[14] == "7" and _UUID7.fullmatch(key):
        made = int(key[:8] + key[9:13], 16)
    elif len(key) == _ULID_LENGTH and _ULID.fullmatch(key):
        for digit in key[:10].upper():
            made = made << 5 | _CROCKFORD.index(digit)
    return made if made > _FIRST_ULID else None


class ScopeHasher:
    """Makes record ids within one scope; the scope is hashed once."""

    __slots__ = ("_scope",)

    def __init__(self, scope_parts: Sequence[str]) -> None:
        framed = hashlib.sha256(b"oncekey scope 1")
        for part in scope_parts:
            data = part.encode("utf-8", "surrogatepass")
            framed.update(len(data).to_bytes(8, "big") + data)
        self._scope = framed.digest()

    def record_id(self, key: str) -> bytes:
        """Return the id of the record for a key: the scope's digest has one length, so no two pairs run together."""
        return hashlib.sha256(self._scope + key.encode("utf-8", "surrogatepass")).digest()[:_RECORD_ID_LENGTH]


def record_id(scope_parts: Sequence[str], key: str) -> bytes:
    """Return the 20 bytes under which the record of a key in a scope is kept."""
    return ScopeHasher(scope_parts).record_id(key)


def principal_digest(text: str) -> str:
    """Return what a scope keeps of a caller's identity, so that credentials never reach a store."""
    data = b"oncekey principal 1" + text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:_PRINCIPAL_LENGTH]


def endpoint_of(method: str, path: str) -> str:
    """Return the name of an endpoint. Doubled and trailing slashes of a path do not make another operation."""
    if "//" in path:
        path = _SLASHES.sub("/", path)
    return f"{method} {path.rstrip('/') or '/'}"


def scope_of(caller: str, endpoint: str) -> tuple[ScopeHasher, str]:
    """Return what makes the ids of one caller at one endpoint ("" where the endpoint is no part of the scope).

    The text is what an operator sees of the caller. Requests and operators come here alike, or they would not meet.
    """
    digest = principal_digest(caller)
    return ScopeHasher((digest, endpoint)), digest[:_CALLER_LENGTH]


# Before the endpoint in a shadow's label, so that whoever reads it does not take it for an operation.
SHADOW = "shadow "


def shadow_scope_of(caller: str, endpoint: str) -> tuple[ScopeHasher, str]:
    """The same for a shadow: no id of it is ever that of an operation."""
    digest = principal_digest(caller)
    return ScopeHasher(("shadow", digest, endpoint)), digest[:_CALLER_LENGTH]


def derived_key(record: bytes, step: str, length: int = 36) -> str:
    """Return the key under which an operation calls somebody else in a step: 32 to 64 hexadecimal digits."""
    digest = hashlib.sha256(b"oncekey step 1" + record + step.encode()).hexdigest()
    return digest[: max(32, min(length, 64))]


def key_ref(record: bytes) -> str:
    """Return the short name of a record for logs and metrics, where keys themselves never appear."""
    return "ok_" + record.hex()[:_REF_LENGTH]
