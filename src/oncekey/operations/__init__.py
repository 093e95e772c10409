"""What an operator may do: look, change, sweep, purge, check. The command line and the console are skins on this.

Everything here takes a store for threads and returns plain values; nothing here prints or asks.
"""

from oncekey.operations.address import masked, opened, scrubbed
from oncekey.operations.answers import answer, read_answer
from oncekey.operations.changing import KEEP_FOR, Change, Desk, Signature, history
from oncekey.operations.cleaning import PurgeReport, SweepReport, purge, sweep, would_purge
from oncekey.operations.copying import CopyReport, Pass, Source, Walk, check_clocks, copy, digest
from oncekey.operations.erasing import EraseReport, checked_digest, digest_of, erase
from oncekey.operations.health import Health, MigrationReport, doctor, migrate, stats, versions
from oncekey.operations.looking import (
    CHOICES,
    ID_DIGITS,
    PAGE,
    Kept,
    Listing,
    Next,
    dead_letters,
    described,
    find,
    id_of,
    is_dead_letter,
    kept,
    listing,
    next_of,
    queue,
    search,
)
from oncekey.operations.recordfile import Contents, Exported, File, export
from oncekey.operations.risks import AppHealth, Risk, assess
from oncekey.operations.routes import Layer, Route, Surface, surface
from oncekey.stores.contract import Finding

__all__ = [
    "CHOICES",
    "ID_DIGITS",
    "KEEP_FOR",
    "PAGE",
    "AppHealth",
    "Change",
    "Contents",
    "CopyReport",
    "Desk",
    "EraseReport",
    "Exported",
    "File",
    "Finding",
    "Health",
    "Kept",
    "Layer",
    "Listing",
    "MigrationReport",
    "Next",
    "Pass",
    "PurgeReport",
    "Risk",
    "Route",
    "Signature",
    "Source",
    "Surface",
    "SweepReport",
    "Walk",
    "answer",
    "assess",
    "check_clocks",
    "checked_digest",
    "copy",
    "dead_letters",
    "described",
    "digest",
    "digest_of",
    "doctor",
    "erase",
    "export",
    "find",
    "history",
    "id_of",
    "is_dead_letter",
    "kept",
    "listing",
    "masked",
    "migrate",
    "next_of",
    "opened",
    "purge",
    "queue",
    "read_answer",
    "scrubbed",
    "search",
    "stats",
    "surface",
    "sweep",
    "versions",
    "would_purge",
]
