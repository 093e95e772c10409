"""To check whether a store is reachable, prepared, and safe to trust with records."""

from __future__ import annotations

import platform
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata

from oncekey.core.record import IN_PROGRESS, State
from oncekey.errors import OnceKeyError, SchemaMissing, StoreUnavailable
from oncekey.operations.address import embedded, masked, scrubbed
from oncekey.stores.contract import Finding, Store

# What a person may mistake for the order of events in two logs. Decisions use the store's clock alone.
SKEW = 1000
# Who takes part, where it is installed.
PACKAGES = ("oncekey", "orjson", "psycopg", "psycopg-pool", "redis", "hiredis", "cryptography", "zstandard")
# A finding whose fix names this command says that the schema is missing or of another version.
MIGRATE = "oncekey migrate"
# An id that no key has.
NOBODY = bytes(20)


@dataclass(frozen=True, slots=True)
class Health:
    """What a check-up saw. `skew` is by how many milliseconds the store's clock is ahead of this machine's."""

    store: str
    reachable: bool
    findings: list[Finding]
    skew: int | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        """Whether this store must not be used as it is."""
        return any(finding.level == "refusal" for finding in self.findings)

    @property
    def warned(self) -> bool:
        """Whether something should be changed."""
        return any(finding.level == "warning" for finding in self.findings)


@dataclass(frozen=True, slots=True)
class MigrationReport:
    """What a migration did, or, as a rehearsal, what is missing."""

    done: list[str]
    rehearsed: bool = False


def migrate(store: Store, *, rehearse: bool = False) -> MigrationReport:
    """Bring the store's schema to this version; as a rehearsal, only say whether there is something to do."""
    if not rehearse:
        done = store.migrate()
        store.get(NOBODY)  # a store without a schema has not been asked anything yet: it must answer all the same
        return MigrationReport(done)
    try:
        return MigrationReport([finding.what for finding in store.check() if MIGRATE in finding.fix], rehearsed=True)
    except SchemaMissing as missing:
        return MigrationReport([str(missing)], rehearsed=True)


def stats(store: Store) -> dict[str, int | str]:
    """How many records there are by state, and what else the store knows cheaply."""
    return store.stats()


def _machine_clock() -> float:
    return time.time() * 1000


def doctor(store: Store, clock: Callable[[], float] = _machine_clock) -> Health:
    """Everything that can be checked from here. It answers also when the store does not; `clock` is this machine's."""
    findings: list[Finding] = []
    skew = None
    try:
        findings += _settings(store)
        findings.insert(0, Finding("ok", "the store is reachable"))
        if not embedded(store.url) and not any(MIGRATE in finding.fix for finding in findings):
            skew, margin = _skew(store, clock)
            findings.append(_about(skew, margin))
        findings += _set_back(store)
    except StoreUnavailable as trouble:
        findings.append(Finding("refusal", scrubbed(str(trouble), store.url)))
        return Health(masked(store.url), reachable=False, findings=findings, versions=versions())
    except OnceKeyError as trouble:
        findings.append(Finding("refusal", scrubbed(str(trouble), store.url)))
    return Health(masked(store.url), reachable=True, findings=findings, skew=skew, versions=versions())


def _settings(store: Store) -> list[Finding]:
    try:
        return store.check()
    except SchemaMissing as missing:
        return [Finding("refusal", str(missing), f"run `{MIGRATE}`")]


def _set_back(store: Store) -> list[Finding]:
    """Whether the store's clock has gone back since the oldest work in progress was claimed."""
    page = store.scan(IN_PROGRESS)
    by = max((record.claimed_at - page.now for record in page.records), default=0)
    if by <= SKEW:
        return []
    return [
        Finding(
            "warning",
            f"the store's clock was set back by {by / 1000:.0f} s or more: work in progress was claimed in its future",
            "set it by NTP in small steps only; leases of owners that have died last that much longer, and "
            "`oncekey resolve` settles them by hand",
        )
    ]


def _skew(store: Store, clock: Callable[[], float]) -> tuple[int, int]:
    """By how much the store's clock is ahead, and how wrong that may be: the answer was made somewhere in between."""
    store.scan((State.CLAIMED,), limit=1)  # the first call pays for the connection
    before = clock()
    now = store.scan((State.CLAIMED,), limit=1).now
    after = clock()
    return round(now - (before + after) / 2), round((after - before) / 2) + 1


def _about(skew: int, margin: int) -> Finding:
    if abs(skew) - margin <= SKEW:
        return Finding("ok", f"this machine's clock and the store's agree to within {abs(skew) + margin} ms")
    way = "behind" if skew > 0 else "ahead of"
    return Finding(
        "warning",
        f"this machine's clock is {abs(skew) / 1000:.1f} s {way} the store's",
        "set both by NTP: leases go by the store's clock, but logs and the age of time-ordered keys by this one",
    )


def versions() -> dict[str, str]:
    """Python, and the packages that take part, as far as they are installed."""
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
