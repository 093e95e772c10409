"""How a client asks what became of its operation, without sending the request again.

    GET {prefix}/operations/{key}?endpoint=POST%20/payments

Whose key it is, is found out as for the operation itself: another caller's record has another id, so what is foreign
and what is absent are one and the same look at the store, with the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qs

from oncekey.core.keys import endpoint_of, key_ref, parse_key_lines, scope_of
from oncekey.core.outcome import Answer, Tombstone, unpack
from oncekey.core.record import IN_PROGRESS, Record, Seen, State
from oncekey.errors import BadKey, ConfigurationError, OnceKeyError
from oncekey.http.answer import retry_after
from oncekey.http.gate import CALLER_UNKNOWN, Gate
from oncekey.http.messages import Reply, Request
from oncekey.http.plain import Steps, json_reply, looking, plain_problem

# How many endpoints one request may have looked through.
MOST = 16
ABSENT = (
    "You have no operation under this key here. If its request may still be under way, send that request again with "
    "the same key; do not make a new key."
)
WHICH = "Say which endpoint the key was sent to: add ?endpoint=POST%20/payments"
WAIT = 5


class StatusPage:
    """The endpoint of one installation. `endpoints` are looked through where a request names none."""

    def __init__(self, gate: Gate, prefix: str = "/idempotency", endpoints: Sequence[str] = ()) -> None:
        if isinstance(endpoints, str) or len(endpoints) > MOST:
            raise ConfigurationError(
                f"endpoints={endpoints!r}: write a list of at most {MOST}, such as ['POST /payments']"
            )
        self.gate = gate
        self.base = f"{prefix.rstrip('/')}/operations"
        self.endpoints = [endpoint_of(*_split(endpoint)) for endpoint in endpoints]

    def __call__(self, request: Request) -> Steps:
        """The reply to one request."""
        if request.method not in ("GET", "HEAD"):
            return plain_problem(405, "Ask with GET.", [(b"allow", b"GET, HEAD")])
        try:
            ids = self._ids(request)
        except BadKey as bad:
            return plain_problem(400, str(bad))
        if isinstance(ids, Reply):
            return ids
        for id_ in ids:
            seen: Seen | None = yield looking(id_)
            if seen is not None and not _is_over(seen):
                return self._told(seen)
        return plain_problem(404, ABSENT)

    def _ids(self, request: Request) -> list[bytes] | Reply:
        key = self._key(request)
        if key is None:
            return plain_problem(404, f"There is nothing here: ask {self.base}/KEY.")
        caller = self.gate.scope(request)
        if not isinstance(caller, str) or not caller:
            return plain_problem(401, f"{CALLER_UNKNOWN[0].upper()}{CALLER_UNKNOWN[1:]}.")
        if self.gate.dialect.endpoint != "scope":
            return [scope_of(caller, "")[0].record_id(key)]
        named = parse_qs(request.query.decode("latin-1")).get("endpoint", [])
        try:
            endpoints = [endpoint_of(*_split(endpoint)) for endpoint in named[:1]] or self.endpoints
        except ConfigurationError:
            return plain_problem(400, f"{WHICH}.")
        if not endpoints:
            return plain_problem(400, f"{WHICH}.")
        return [scope_of(caller, endpoint)[0].record_id(key) for endpoint in endpoints]

    def _key(self, request: Request) -> str | None:
        """The key in the path; or, to keep it out of logs, in its own header."""
        rule = self.gate.dialect.rule
        if request.path.startswith(f"{self.base}/"):
            text = request.path.removeprefix(f"{self.base}/")
            return parse_key_lines([text.encode("utf-8", "surrogateescape")], rule)
        header = self.gate.dialect.header
        if request.path == self.base and header is not None:
            lines = request.lines(header.lower().encode())
            return parse_key_lines(lines, rule)
        return None

    def _told(self, seen: Seen) -> Reply:
        record, now = seen
        members: dict[str, object] = {"operation": key_ref(record.id), "state": record.state.word}
        if record.state is State.COMPLETED:
            status = self._status(record)
            members["retry"] = "same-key-later"
            if record.due_at is not None and record.due_at <= now:
                members |= {"state": State.EXPIRED.word, "retry": "never"}
            elif status is not None:
                members["status"] = status
            return json_reply(200, members)
        if record.state is State.EXPIRED:
            return json_reply(200, members | {"retry": "never"})
        wait = retry_after(_wait(record, now))
        members |= {"retry": "same-key-later", "retry_after": wait}
        return json_reply(200, members, [(b"retry-after", b"%d" % wait)])

    def _status(self, record: Record) -> int | None:
        try:
            outcome = unpack(self.gate.sealer.open(record.id, record.outcome))
        except OnceKeyError:
            return None
        return outcome.status if isinstance(outcome, Answer | Tombstone) else None


def _split(endpoint: str) -> tuple[str, str]:
    method, _, path = endpoint.strip().partition(" ")
    if not method.isalpha() or not path.strip().startswith("/"):
        raise ConfigurationError(f"endpoint {endpoint!r} is not a method and a path: write 'POST /payments'")
    return method.upper(), path.strip()


def _is_over(seen: Seen) -> bool:
    """Whether a record counts as forgotten, though it may not be purged yet."""
    record, now = seen
    final = record.state not in (*IN_PROGRESS, State.UNKNOWN)
    return final and record.expires_at is not None and record.expires_at <= now


def _wait(record: Record, now: int) -> int:
    until = record.lease_until if record.state in IN_PROGRESS else record.due_at
    left = -(-max(0, (until or now) - now) // 1000)
    return max(left, WAIT) if record.state is State.UNKNOWN else left
