"""Whether a store may be used: what a start-up check found, weighed in one place for all gateways."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from oncekey.engine.events import log
from oncekey.errors import UnsafeStore

if TYPE_CHECKING:
    from oncekey.stores.contract import Finding


def weigh(findings: Iterable[Finding]) -> None:
    """Say warnings aloud; raise UnsafeStore, with every fix, if the store would lose or evict records."""
    refusals = []
    for finding in findings:
        if finding.level == "refusal":
            refusals.append(f"{finding.what}: {finding.fix}")
        elif finding.level == "warning":
            log.warning("%s: %s", finding.what, finding.fix)
    if refusals:
        raise UnsafeStore("; ".join(refusals))
