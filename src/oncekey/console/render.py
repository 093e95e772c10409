"""Templates to bytes. What comes from outside is escaped, and what would mislead a reader made visible."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from oncekey.core.keys import key_ref
from oncekey.core.record import Record
from oncekey.operations.words import brief, coming, size, visible
from oncekey.stores.contract import Finding

HERE = Path(__file__).parent
# Years that a page can write; what lies outside is no instant of a real record.
LATEST = 253_370_764_800_000


def ago(at: int, now: int) -> str:
    """How far away an instant is."""
    return f"in {brief(at - now)}" if at > now else f"{brief(now - at)} ago"


def iso(at: int) -> str:
    """An instant for machines."""
    return datetime.fromtimestamp(min(max(at, 0), LATEST) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def instant(at: int) -> str:
    """An instant in UTC for people."""
    return iso(at).replace("T", " ").replace("Z", " UTC")


def age(record: Record, now: int) -> str:
    """For how long it has been there."""
    return brief(now - record.claimed_at)


def ref(record: Record) -> str:
    """Its short name, as in logs."""
    return key_ref(record.id)


def worst(findings: Iterable[Finding]) -> list[Finding]:
    """A check-up's findings, the worst first."""
    return sorted(findings, key=lambda finding: ("refusal", "warning", "ok").index(finding.level))


@functools.cache
def environment() -> Environment:
    """The templates, made once."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"ago": ago, "iso": iso, "instant": instant, "age": age, "ref": ref, "next": coming, "size": size}
    made.filters |= {
        "worst": worst,
        "visible": visible,
        "shown": functools.partial(visible, lines=True),
        "number": "{:,}".format,
    }
    return made


def render(template: str, **values: Any) -> bytes:
    """One page."""
    return environment().get_template(template).render(values).encode("utf-8", "replace")
