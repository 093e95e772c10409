"""What is kept of an application's answer, and how its end is recorded.

Kept are all headers in their order, duplicates too, but those that belong to one message, one connection, one login
or one moment. A body is kept as the application sent it: if a layer inside of ours compressed it, compressed, together
with its content-encoding and vary; compress outside of OnceKey.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oncekey.core.outcome import STATIC
from oncekey.core.policy import ms
from oncekey.errors import NotExecuted
from oncekey.http.grammar import Verdict

if TYPE_CHECKING:
    from oncekey.core.policy import Policy
    from oncekey.core.record import State
    from oncekey.http.grammar import Dialect

Header = tuple[bytes, bytes]

# Belong to the connection (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
    | {b"http2-settings"}
)
# Belong to a login: nobody else may get them.
LOGIN = frozenset(
    {b"set-cookie", b"set-cookie2", b"clear-site-data", b"www-authenticate", b"authentication-info", b"authorization"}
    | {b"x-csrf-token", b"x-csrftoken", b"x-xsrf-token", b"csrf-token", b"dpop-nonce"}
)
# Belong to the moment, or to the server that answers.
MOMENT = frozenset({b"date", b"server", b"age", b"via", b"alt-svc", b"server-timing", b"x-runtime", b"x-process-time"})
# Name one request; a replay is another.
REQUEST_IDS = frozenset(
    {b"x-request-id", b"request-id", b"x-correlation-id", b"correlation-id", b"x-trace-id", b"trace-id", b"x-span-id"}
    | {b"traceparent", b"tracestate", b"traceresponse", b"baggage", b"b3", b"uber-trace-id", b"x-cloud-trace-context"}
    | {b"x-amzn-trace-id", b"x-amzn-requestid", b"x-amz-request-id", b"x-amz-id-2", b"x-datadog-trace-id", b"cf-ray"}
)
NEVER_KEPT = HOP_BY_HOP | LOGIN | MOMENT | REQUEST_IDS
NEVER_KEPT_PREFIXES = (b"proxy-", b"x-b3-")
# What nearly all answers have: a short way for them.
USUAL = frozenset(name.lower() for name, _ in STATIC) - NEVER_KEPT
FIXED = frozenset(header for header in STATIC if header[1] is not None and header[0].lower() not in NEVER_KEPT)

LENGTH = b"content-length"
# 100 to 199 announce an answer and are none.
FINAL_STATUSES = range(200, 1000)
NOT_MODIFIED = 304
# Their answers have no body, whatever their headers say.
BODILESS = frozenset({204, NOT_MODIFIED})

TOKEN_BYTES = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# As numbers: `in` looks for one without raising an error to itself first, as it does for bytes.
_LF, _CR, _NUL = 0x0A, 0x0D, 0x00

# The shortest time that a store can tell from none.
_AT_ONCE = 1


class Shape(NamedTuple):
    """What is known of an answer's headers by their names alone; the same application has few of them."""

    # Whether all are kept, if their values may be.
    kept: bool
    # Where a content-length stands.
    lengths: tuple[int, ...]


def shape(names: tuple[bytes, ...], also_drop: Collection[bytes] = ()) -> Shape:
    """What these names say of the headers that have them. `also_drop` as in kept_headers."""
    lengths = tuple(at for at, name in enumerate(names) if name.lower() == LENGTH)
    return Shape(len(kept_headers([(name, b"") for name in names], also_drop)) == len(names), lengths)


def shaped_headers(shape: Shape, headers: list[Header], also_drop: Collection[bytes] = ()) -> list[Header]:
    """The same as kept_headers, by what is known already; the list itself where all of it is kept."""
    if shape.kept and _clean(b"".join([value for _, value in headers])):
        return headers
    return kept_headers(headers, also_drop)


def kept_headers(headers: Iterable[Header], also_drop: Collection[bytes] = ()) -> list[Header]:
    """The headers that are stored. `also_drop` holds further names, in lower case."""
    kept: list[Header] = []
    named: list[bytes] = []
    for header in headers:
        if header in FIXED and not also_drop:
            kept.append(header)
            continue
        name = header[0].lower()
        if name in USUAL and name not in also_drop and _clean(header[1]):
            kept.append(header)
        elif name in NEVER_KEPT or name.startswith(NEVER_KEPT_PREFIXES) or name in also_drop:
            if name == b"connection":
                named += [option.strip() for option in header[1].lower().split(b",")]
        elif legal(*header):
            kept.append(header)
    return [header for header in kept if header[0].lower() not in named] if named else kept


def legal(name: bytes, value: bytes) -> bool:
    """Whether HTTP allows this header; one that is not could end the head of a message early."""
    return bool(name) and not name.translate(None, TOKEN_BYTES) and _clean(value)


def all_legal(headers: Sequence[Header]) -> bool:
    """The same for all at once."""
    return (
        _clean(b"".join([value for _, value in headers]))
        and not b"".join([name for name, _ in headers]).translate(None, TOKEN_BYTES)
        and all(name for name, _ in headers)
    )


def check_whole(status: int, headers: Sequence[Header], shape: Shape, length: int | None) -> None:
    """Refuse what no server can send as one answer: it would be cut off, or run on, the first time and every time.

    `length` is that of the body; None: it is not known yet.
    """
    if status not in FINAL_STATUSES:
        raise RuntimeError(f"the application answered with status {status}, which ends no exchange")
    if length is None or status == NOT_MODIFIED:
        return
    for at in shape.lengths:
        if headers[at][1] != b"%d" % length and not _is_length(headers[at][1], length):
            raise RuntimeError(f"the application's content-length is not the {length} bytes that it sent")


def one_message(status: int, headers: Sequence[Header], names: Collection[bytes], length: int) -> bool:
    """Whether a stored answer is one answer to everybody who reads it. `names` are those of the headers, lower case.

    What frames a message is never kept. Where it stands in a store, it would make a body into an answer of its own.
    """
    if status not in FINAL_STATUSES or not HOP_BY_HOP.isdisjoint(names) or not all_legal(headers):
        return False
    if LENGTH not in names or status == NOT_MODIFIED:
        return True
    return all(_is_length(value, length) for name, value in headers if name.lower() == LENGTH)


def _is_length(value: bytes, length: int) -> bool:
    said = value.strip()
    return said.isdigit() and said.lstrip(b"0") == (b"%d" % length).lstrip(b"0")


def _clean(value: bytes) -> bool:
    return not (_LF in value or _CR in value or _NUL in value)


class Ending(NamedTuple):
    """How an attempt is recorded, in the terms of a Settlement; a KEPT one takes the answer with it."""

    verdict: Verdict
    keep_for: int | None
    due_for: int | None
    note: str = ""

    @property
    def target(self) -> State:
        """Where the record goes."""
        return self.verdict.state


def settlement(
    dialect: Dialect,
    policy: Policy,
    status: int,
    headers: Sequence[Header] = (),
    *,
    begun: bool = True,
    made: Collection[str] = (),
    repeats: bool = False,
) -> Ending:
    """How a finished answer is recorded. `begun` is False while the latch says that no effect has left.

    `made` names calls that may have had an effect. They speak against whatever says that nothing was done, unless the
    next attempt `repeats` them under their own keys.
    """
    verdict = dialect.outcomes.verdict(status, headers)
    if verdict is Verdict.KEPT:
        return completed(policy)
    note = f"the handler answered {status}"
    if verdict is Verdict.FORGOTTEN and not made:
        return Ending(Verdict.FORGOTTEN, _AT_ONCE, None, note)
    if verdict is not Verdict.UNKNOWN:
        return _declared(policy, note, made, repeats=repeats)
    return _unfinished(policy, note, nothing_done=not begun)


def settlement_without_answer(
    policy: Policy,
    error: BaseException | None,
    *,
    begun: bool = True,
    made: Collection[str] = (),
    repeats: bool = False,
) -> Ending:
    """How an end without an answer is recorded: an exception, a cancellation, or an answer that was cut short."""
    note = f"{type(error).__name__}: {error}"[:200] if error is not None else "the handler ended without an answer"
    if isinstance(error, NotExecuted):
        return _declared(policy, note, made, repeats=repeats)
    return _unfinished(policy, note, nothing_done=not begun)


def _declared(policy: Policy, note: str, made: Collection[str], *, repeats: bool) -> Ending:
    """The code says that nothing was done; the calls it has made may say otherwise."""
    if made and not repeats:
        note = f"{note} (but {', '.join(made)} may have been done)"
        return _unfinished(policy, note, nothing_done=False)
    return _unfinished(policy, note, nothing_done=True)


def completed(policy: Policy) -> Ending:
    """How an answer is kept."""
    # due_at of a completed record is the end of the answer, expires_at that of the key; only a longer key needs both.
    if policy.keep_key_for is None or policy.keep_key_for == policy.keep_for:
        return Ending(Verdict.KEPT, ms(policy.keep_for), None)
    return Ending(Verdict.KEPT, ms(policy.keep_key_for), ms(policy.keep_for))


def _unfinished(policy: Policy, note: str, *, nothing_done: bool) -> Ending:
    if not nothing_done:
        return Ending(Verdict.UNKNOWN, None, ms(policy.reconcile_after_for), note)
    due_for = ms(policy.retry_after_for) if policy.retry_after_for is not None else None
    return Ending(Verdict.RELEASED, ms(policy.keep_key_for or policy.keep_for), due_for, note)
