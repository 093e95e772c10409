"""What the user chose, in one frozen object. Bad choices are refused here, with the words to write instead.

Durations are seconds and end in `_for`; `None` is the only "unlimited". The CLI options, environment names and the
table in docs/reference/policy.md are made from these fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from oncekey.core.record import Guarantee
from oncekey.errors import ConfigurationError

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# Whoever writes a policy down sees the choices; what comes from elsewhere is looked at all the same.
GuaranteeName = Literal["at_most_once", "transactional", "deduplicated_downstream"]
AT_MOST_ONCE: Final = "at_most_once"
TRANSACTIONAL: Final = "transactional"
GUARANTEES: dict[str, Guarantee] = {guarantee.name.lower(): guarantee for guarantee in Guarantee}


def _is(help_: str, default: Any) -> Any:
    return field(default=default, metadata={"help": help_})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one route, or all of them, treats retries."""

    guarantee: GuaranteeName = _is(  # noqa: RUF009 - a field, as all of these are
        "what protects a second run: at_most_once, transactional or deduplicated_downstream", AT_MOST_ONCE
    )
    take_over: bool | None = _is("run a lapsed attempt again; needs one of the last two guarantees", None)
    latch: bool = _is("the handler marks by itself when its effect may begin; a crash before that is retryable", False)
    lease_for: float = _is("how long an attempt may be silent before it counts as lost", 30.0)
    handler_for: float | None = _is("the handler's own deadline, if it has one; the lease must be longer", None)
    cap_for: float = _is("how long a lease may be renewed altogether", 900.0)
    store_for: float = _is("time budget of one store call", 5.0)
    keep_for: float = _is("how long an answer is kept and replayed", 86_400.0)
    recall_for: float | None = _is("how long a process gives an answer again from its own memory; None: never", 10.0)
    keep_key_for: float | None = _is("how long the key stays refused after that; None: as long as the answer", None)
    wait_for: float | None = _is("hold a duplicate this long for the first answer; None: answer 409 at once", None)
    waiting: int = _is("how many duplicates one process may hold at a time", 100)
    retry_after_for: float | None = _is(
        "how long a failed attempt waits before it may be retried; None: not at all", None
    )
    reconcile_after_for: float = _is("how long an unknown outcome waits before it is asked about", 5.0)
    attempts: int | None = _is("how many attempts one operation gets; None: any number", None)
    max_body: int = _is("largest request body, in bytes", 1 << 20)
    max_kept: int = _is("largest answer that is kept, in bytes; a larger one leaves a tombstone", 1 << 20)
    drop_headers: tuple[str, ...] = _is("further headers of an answer that are not kept, by name", ())

    def __post_init__(self) -> None:
        """Refuse what cannot work, and say what to write instead."""
        for spec in fields(self):
            value = getattr(self, spec.name)
            _check_kind(spec.name, value, str(spec.type))
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if not value > 0 or value == float("inf"):
                hint = f" or None ({spec.metadata['help']})" if "None" in str(spec.type) else ""
                raise ConfigurationError(f"{spec.name}={value!r} makes no sense: write a number above 0{hint}")
        if self.guarantee not in GUARANTEES:
            raise ConfigurationError(f"guarantee={self.guarantee!r} is not known: write one of {', '.join(GUARANTEES)}")
        self._check_take_over()
        self._check_times()
        for header in self.drop_headers:
            if not (isinstance(header, str) and _NAME.fullmatch(header)):
                raise ConfigurationError(f"drop_headers: {header!r} is no header: write drop_headers=('X-Balance',)")

    def _check_take_over(self) -> None:
        if self.take_over and not GUARANTEES[self.guarantee].may_take_over:
            raise ConfigurationError(
                "take_over=True would run an effect twice after a crash: write guarantee='transactional' if the record "
                "commits with your own writes, or guarantee='deduplicated_downstream' if every effect carries a key "
                "that its receiver deduplicates; otherwise leave take_over out"
            )

    def _check_times(self) -> None:
        needed = (self.handler_for or 0) + self.store_for
        if self.handler_for is not None and self.lease_for < needed:
            raise ConfigurationError(
                f"lease_for={self.lease_for:g} is shorter than the handler's deadline of {self.handler_for:g} s plus "
                f"{self.store_for:g} s for the store: write lease_for={needed:g} or more"
            )
        if self.cap_for < self.lease_for:
            raise ConfigurationError(
                f"cap_for={self.cap_for:g} is shorter than lease_for={self.lease_for:g}: "
                f"write cap_for={self.lease_for:g} or more"
            )
        if self.keep_for < self.lease_for:
            raise ConfigurationError(
                f"keep_for={self.keep_for:g} is shorter than lease_for={self.lease_for:g}: an answer must outlive its "
                f"retries; write keep_for=86400 for a day"
            )
        if self.keep_key_for is not None and self.keep_key_for < self.keep_for:
            raise ConfigurationError(
                f"keep_key_for={self.keep_key_for:g} is shorter than keep_for={self.keep_for:g}: "
                "the key outlives its answer, not the reverse"
            )

        kept_for = self.keep_key_for or self.keep_for
        if self.retry_after_for is not None and self.retry_after_for > kept_for:
            raise ConfigurationError(
                f"retry_after_for={self.retry_after_for:g} is longer than the failed attempt is remembered, which is "
                f"{kept_for:g} s: write retry_after_for={kept_for:g} or less"
            )

    @property
    def level(self) -> Guarantee:
        """The guarantee as the record stores it: take_over=False forgoes what the guarantee would allow."""
        return Guarantee.AT_MOST_ONCE if self.take_over is False else GUARANTEES[self.guarantee]


def checked(policy: object) -> Policy:
    """A policy, and nothing that only looks like one."""
    if not isinstance(policy, Policy):
        raise ConfigurationError(f"policy={policy!r} is no policy: write policy=Policy(lease_for=30)")
    return policy


_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "float": ((int, float), "a number above 0"),
    "int": (int, "a whole number above 0"),
    "bool": (bool, "True or False"),
    "GuaranteeName": (str, "one of " + ", ".join(GUARANTEES)),
    "tuple[str, ...]": (tuple, "a tuple of names, such as ('X-Balance',)"),
}


def _check_kind(name: str, value: Any, declared: str) -> None:
    kind, _, none = declared.partition(" | ")
    types, hint = _KINDS[kind]
    if value is None and none:
        return
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise ConfigurationError(f"{name}={value!r} makes no sense: write {hint}{' or None' if none else ''}")


def ms(seconds: float) -> int:
    """Seconds as whole milliseconds, at least one."""
    return max(1, round(seconds * 1000))
