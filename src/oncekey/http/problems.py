"""The problem types: every way in which OnceKey refuses, and the client's next step. Each has a page in docs/problems.

`retry` is for machines:

    same-key-later   send the same request again, with the same key, after `retry_after` seconds
    new-key-safe     nothing was done under this key and nothing will be: a new key cannot double an effect
    never            do not send this request again as it is; read what happened first
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, NamedTuple

# Types are identifiers that clients compare: the base is not changed once it was published.
TYPE_BASE = "https://oncekey.dev/problems/"


class Retry(StrEnum):
    """What the client may do next."""

    SAME_KEY_LATER = "same-key-later"
    NEW_KEY_SAFE = "new-key-safe"
    NEVER = "never"


class Problem(NamedTuple):
    """One type of refusal: its name, one sentence, the status unless a dialect has its own, and the next step."""

    slug: str
    title: str
    status: int
    retry: Retry


_LATER, _NEW, _NEVER = Retry.SAME_KEY_LATER, Retry.NEW_KEY_SAFE, Retry.NEVER

PROBLEMS: dict[str, Problem] = {
    problem.slug: problem
    for problem in (
        Problem("key-missing", "The request has no idempotency key", 400, _NEW),
        Problem("key-invalid", "The idempotency key is malformed", 400, _NEW),
        Problem("key-repeated", "The request has more than one idempotency key", 400, _NEVER),
        Problem("key-reused", "The idempotency key was used for another request", 422, _NEVER),
        Problem("in-progress", "The operation is in progress", 409, _LATER),
        Problem("retry-later", "The operation failed without effect and may be retried later", 409, _LATER),
        Problem("outcome-unknown", "It is not known whether the operation took effect", 409, _LATER),
        Problem("lease-lost", "Another attempt has taken over the operation", 409, _LATER),
        Problem("answer-not-kept", "The operation is done and its answer was not kept", 410, _NEVER),
        Problem("key-expired", "The operation is done and its answer has expired", 410, _NEVER),
        Problem("request-too-old", "The request is older than answers are kept", 412, _NEVER),
        Problem("attempts-exhausted", "The operation has used up its attempts", 410, _NEW),
        Problem("not-executed", "The operation was not executed", 503, _LATER),
        Problem("body-too-large", "The request body is too large", 413, _NEVER),
        Problem("body-incomplete", "The request body ended early", 400, _LATER),
        Problem("caller-unknown", "The request does not say whose idempotency key it carries", 401, _NEVER),
        Problem("request-refused", "The request breaks a rule of this service", 400, _NEVER),
        Problem("store-unavailable", "Idempotency records cannot be reached", 503, _LATER),
        Problem("record-unreadable", "The record of this operation cannot be read", 503, _LATER),
    )
}


class Fault(NamedTuple):
    """One refusal, before a dialect gives it a shape.

    `operation` is the short reference that logs carry; `rule` is the broken rule of a bad key; `place` names the header
    or JSON member in which the key travels; `docs` is the base of the type.
    """

    problem: Problem
    status: int
    detail: str
    retry: Retry
    retry_after: int | None = None
    operation: str = ""
    rule: str = ""
    place: str = ""
    docs: str = TYPE_BASE

    @property
    def slug(self) -> str:
        """The problem's name."""
        return self.problem.slug

    @property
    def type(self) -> str:
        """The problem's type, a URI."""
        return self.docs + self.problem.slug


Shaped = tuple[tuple[tuple[bytes, bytes], ...], bytes]


def problem_json(fault: Fault) -> Shaped:
    """RFC 9457: the standard members, then ours."""
    members: dict[str, Any] = {
        "type": fault.type,
        "title": fault.problem.title,
        "status": fault.status,
        "detail": fault.detail,
        "retry": fault.retry.value,
    }
    if fault.retry_after is not None:
        members["retry_after"] = fault.retry_after
    if fault.rule:
        members["rule"] = fault.rule
    if fault.operation:
        members["operation"] = fault.operation
    return (), json_bytes(members)


def json_bytes(members: dict[str, Any]) -> bytes:
    """Compact JSON in pure ASCII, so that no text can make it fail."""
    return json.dumps(members, separators=(",", ":")).encode()
