"""What a dialect consists of. Make your own with dataclasses.replace; what cannot work is refused, with what to write.

An instance is data: where the key travels, what counts as a key, how refusals look, what marks a replay, and which of
the application's answers are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

from oncekey.core.keys import KeyRule
from oncekey.core.policy import Policy
from oncekey.core.record import State
from oncekey.errors import BadKey, ConfigurationError
from oncekey.http.problems import PROBLEMS, TYPE_BASE, Fault, Problem, Retry, Shaped

Header = tuple[bytes, bytes]

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_TEXT = re.compile(rb"[!-~](?:[ -~]*[!-~])?")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
_ACCEPTED = 202


class Verdict(StrEnum):
    """What becomes of an answer that the application gave."""

    KEPT = "kept"  # it is the outcome: stored, and given to every retry
    RELEASED = "released"  # nothing was done: the same request may run again under its key
    FORGOTTEN = "forgotten"  # nothing was done, and the key is free again, for another request too
    UNKNOWN = "unknown"  # it may or may not have taken effect: the key stays shut until that is found out

    @property
    def state(self) -> State:
        """Where the record goes."""
        return _STATES[self]


_STATES = {
    Verdict.KEPT: State.COMPLETED,
    Verdict.RELEASED: State.FAILED_RETRYABLE,
    Verdict.FORGOTTEN: State.FAILED_RETRYABLE,
    Verdict.UNKNOWN: State.UNKNOWN,
}
_BUSY = {408: Verdict.RELEASED, 425: Verdict.RELEASED, 429: Verdict.RELEASED}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcomes:
    """The outcome table: a verdict by class of status, by single statuses, and by a header that declares no effect."""

    client_errors: Verdict = Verdict.KEPT
    server_errors: Verdict = Verdict.UNKNOWN
    single: Mapping[int, Verdict] = field(default_factory=_BUSY.copy)
    no_effect_header: Header | None = None

    def __post_init__(self) -> None:
        for status in self.single:
            if not 400 <= status <= 599:  # noqa: PLR2004 - the statuses of errors
                raise ConfigurationError(
                    f"single={{{status}: ...}}: only errors, 400 to 599, may have a verdict of their own; a success or "
                    "redirection is always kept, because a retry would run the operation again"
                )
        if self.no_effect_header is not None:
            check_headers("no_effect_header", [self.no_effect_header])
        object.__setattr__(self, "single", MappingProxyType(dict(self.single)))

    def verdict(self, status: int, headers: Iterable[Header] = ()) -> Verdict:
        """What becomes of an answer."""
        if 200 <= status < 400:  # noqa: PLR2004 - success and redirection
            return Verdict.KEPT
        if self.no_effect_header is not None and self._declares_no_effect(headers):
            return Verdict.RELEASED
        single = self.single.get(status)
        if single is not None:
            return single
        # What is neither 4xx nor 5xx is no final answer that HTTP knows.
        if 400 <= status < 500:  # noqa: PLR2004
            return self.client_errors
        return self.server_errors if 500 <= status < 600 else Verdict.UNKNOWN  # noqa: PLR2004

    def _declares_no_effect(self, headers: Iterable[Header]) -> bool:
        return any((name.lower(), value.strip().lower()) == self.no_effect_header for name, value in headers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """How idempotency looks on the wire."""

    name: str
    # Where the key travels: in a header, or in a member of the JSON body (the first of these names that is there).
    header: str | None = None
    members: tuple[str, ...] = ()
    # Requests with other methods are not touched.
    methods: frozenset[str] = frozenset({"POST"})
    rule: KeyRule = KeyRule()  # noqa: RUF009 - frozen
    required: bool = True
    # Whether another endpoint is another operation ("scope"), or a wrong use of the key ("fingerprint").
    endpoint: Literal["scope", "fingerprint"] = "scope"
    # Statuses of refusals that differ from the table in problems.py, by slug.
    statuses: Mapping[str, int] = field(default_factory=dict)
    shape: Callable[[Fault], Shaped]
    media: bytes = b"application/json"
    docs: str = TYPE_BASE
    # Headers of a replay, whether the key is sent back, and statuses that differ on a replay.
    marker: tuple[Header, ...] = ()
    echo: Literal["never", "always"] = "never"
    replay_statuses: Mapping[int, int] = field(default_factory=dict)
    # Headers for clients that retry by themselves: by next step on refusals, and on every 5xx that is kept.
    hints: Mapping[Retry, tuple[Header, ...]] = field(default_factory=dict)
    kept_error_hints: tuple[Header, ...] = ()
    outcomes: Outcomes = Outcomes()
    # Defaults for a policy: how long answers are kept, and how long it helps this dialect's clients to be held.
    keep_for: float = 86_400.0
    patience_for: float | None = None
    # Worked out once.
    header_name: bytes = field(init=False, repr=False, default=b"")

    def __post_init__(self) -> None:
        check_place(self)
        check_answers(self)
        freeze = object.__setattr__
        freeze(self, "header_name", self.header.lower().encode() if self.header else b"")
        for name in ("statuses", "replay_statuses", "hints"):
            freeze(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def place(self) -> str:
        """Where the key travels, in words for a client."""
        if self.header is not None:
            return f"the header {self.header}"
        return "the JSON member " + " or ".join(self.members)

    def missing(self) -> BadKey:
        """The error for a request that needs a key and has none."""
        return BadKey("missing", f"The request has no idempotency key in {self.place}.", self.rule.advice)

    def status_of(self, problem: Problem) -> int:
        """The status of a refusal."""
        return self.statuses.get(problem.slug, problem.status)

    def settle_as(self, status: int, headers: Iterable[Header] = ()) -> State:
        """Where the record goes after an answer; see http.capture.settlement for its times."""
        return self.outcomes.verdict(status, headers).state

    def policy(self, **choices: Any) -> Policy:
        """A policy with this dialect's defaults."""
        return Policy(**{"keep_for": self.keep_for, **choices})


# ---- what cannot work --------------------------------------------------------------------------------------------


def check_place(dialect: Dialect) -> None:
    """Refuse a key that travels nowhere, in two places, or with the wrong methods."""
    if (dialect.header is None) == (not dialect.members):
        raise ConfigurationError(
            f"dialect {dialect.name!r}: the key travels in one place: write header='Idempotency-Key' and members=(), "
            "or header=None and members=('idempotency_key',)"
        )
    if dialect.header is not None and not _TOKEN.fullmatch(dialect.header.lower().encode("utf-8", "replace")):
        raise ConfigurationError(f"header={dialect.header!r} is no header name: write header='Idempotency-Key'")
    if dialect.header is None and dialect.echo != "never":
        raise ConfigurationError("echo= sends back the key's header, and this key is in the body: write echo='never'")
    if not (isinstance(dialect.members, tuple) and all(dialect.members)):
        raise ConfigurationError(f"members={dialect.members!r} is no tuple: write members=('idempotency_key',)")
    if dialect.endpoint not in {"scope", "fingerprint"}:
        raise ConfigurationError(f"endpoint={dialect.endpoint!r} is not known: write 'scope' or 'fingerprint'")
    if not (isinstance(dialect.methods, frozenset) and dialect.methods):
        raise ConfigurationError(f"methods={dialect.methods!r} is no set: write methods=frozenset({{'POST'}})")
    wrong = sorted(method for method in dialect.methods if method in _SAFE or method != method.upper())
    if wrong:
        raise ConfigurationError(
            f"methods={wrong}: write names in upper case, and leave out the methods that change nothing "
            f"({', '.join(sorted(_SAFE))}), which need no key"
        )


def check_answers(dialect: Dialect) -> None:
    """Refuse statuses, headers and durations that no reply could carry."""
    for slug, status in dialect.statuses.items():
        if slug not in PROBLEMS:
            raise ConfigurationError(f"statuses: {slug!r} is no problem type; they are {', '.join(PROBLEMS)}")
        if not 400 <= status <= 599 and (slug, status) != ("in-progress", _ACCEPTED):  # noqa: PLR2004
            raise ConfigurationError(
                f"statuses: {slug}: {status} is no error: write 400 to 599, or 202 for in-progress"
            )
    for first, again in dialect.replay_statuses.items():
        if not (200 <= first <= 299 and 200 <= again <= 299):  # noqa: PLR2004
            raise ConfigurationError(f"replay_statuses={{{first}: {again}}}: these are successes, 200 to 299")
    hints = [header for headers in dialect.hints.values() for header in headers]
    for what, headers in (("marker", dialect.marker), ("kept_error_hints", dialect.kept_error_hints), ("hints", hints)):
        check_headers(what, headers)
    check_headers("media", [(b"content-type", dialect.media)])
    if dialect.patience_for is not None and not 0 < dialect.patience_for < float("inf"):
        raise ConfigurationError(f"patience_for={dialect.patience_for!r}: write seconds above 0, or None")
    dialect.policy()


def check_headers(what: str, headers: Iterable[Header]) -> None:
    """Refuse headers that are not in lower case or that HTTP forbids."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or not _TEXT.fullmatch(value):
            raise ConfigurationError(
                f"{what}: {name!r}: {value!r} is no header: write the name in lower case and a value of visible ASCII, "
                "such as (b'idempotency-replayed', b'true')"
            )
