"""To erase the answers of one caller: the bodies go, the keys and the statuses stay, so that nothing runs again.

The trail of each record says who erased it and why. What is not finished is left: its journal is what a reconciler and
the next attempt go by, and its answer is still to come.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from oncekey.core.keys import scope_of
from oncekey.core.outcome import Tombstone
from oncekey.core.record import Record, Seen, State
from oncekey.errors import ConfigurationError
from oncekey.operations.changing import ERASED, Desk, Signature
from oncekey.operations.cleaning import BATCH, LONGEST_REST
from oncekey.operations.looking import CHOICES, kept

DIGEST = re.compile(r"[0-9a-f]{12}")


@dataclass(slots=True)
class EraseReport:
    """What became of a caller's records.

    `nothing` kept no answer in the first place, or none any more. Left as they are: `unfinished` ones, those that
    `moved_on` while they were looked at, and those whose answer is `unreadable` here. `nameless` finished records do
    not say whose they are. It is not `finished` if it was stopped.
    """

    looked: int = 0
    erased: int = 0
    nothing: int = 0
    unfinished: int = 0
    moved_on: int = 0
    unreadable: int = 0
    nameless: int = 0
    finished: bool = False
    rehearsed: bool = False

    @property
    def whole(self) -> bool:
        """Whether nothing of this caller's answers can be left."""
        return self.finished and not (self.unfinished or self.moved_on or self.unreadable or self.nameless)


def digest_of(caller: str) -> str:
    """What a record keeps of whose it is: the caller's text, as the scope returned it, hashed as a request does."""
    if not caller:
        raise ConfigurationError("the scope is empty: write what it returns for the caller, such as a header's value")
    return scope_of(caller, "")[1]


def checked_digest(digest: str) -> str:
    """A digest as `ls` shows it, whole."""
    if not DIGEST.fullmatch(digest):
        raise ConfigurationError(
            f"{digest!r} is no digest of a scope: write the 12 hexadecimal digits that `oncekey show` prints as its "
            f"scope, or name the caller with --scope"
        )
    return digest


def erase(
    desk: Desk,
    digest: str,
    signature: Signature,
    *,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda looked: None,
    rest: Callable[[float], None] = time.sleep,
) -> EraseReport:
    """Walk over every record, a small page at a time, and erase the answers of this caller. It may be run again."""
    signature.checked()
    report = EraseReport(rehearsed=desk.rehearse)
    after: str | None = None
    while not stop():
        began = time.monotonic()
        page = desk.store.scan(CHOICES["all"], after=after, limit=BATCH)
        for record in page.records:
            _erase(desk, Seen(record, page.now), digest, signature, report)
        report.looked += len(page.records)
        report.unreadable += page.unreadable
        progress(report.looked)
        after = page.after
        if after is None:
            report.finished = True
            break
        rest(min(time.monotonic() - began, LONGEST_REST))
    return report


def _erase(desk: Desk, seen: Seen, digest: str, signature: Signature, report: EraseReport) -> None:
    record = seen.record
    if record.state is State.COMPLETED and not record.label.scope:
        report.nameless += 1
    if record.label.scope != digest:
        return
    fate = _fate(desk, record)
    if fate is None:
        change = desk.erase(seen, signature)
        fate = "erased" if change.written or change.rehearsed else "moved_on"
    setattr(report, fate, getattr(report, fate) + 1)


def _fate(desk: Desk, record: Record) -> str | None:
    """What becomes of a record that is left as it is; None if it has an answer to erase."""
    if record.state is State.EXPIRED:
        return "nothing"
    if record.state is not State.COMPLETED:
        return "nothing" if record.state is State.FAILED_RETRYABLE and not record.outcome else "unfinished"
    found = kept(record, desk.sealer)
    if found is None or (isinstance(found.outcome, Tombstone) and found.outcome.reason == ERASED):
        return "nothing"
    return "unreadable" if found.outcome is None else None
