"""What an operator may do: look, sweep, purge, check. The command line and the console are skins on this.

Everything here takes a store for threads and returns plain values; nothing here prints or asks.
"""

from oncekey.operations.address import masked, opened, scrubbed
from oncekey.operations.cleaning import PurgeReport, SweepReport, purge, sweep
from oncekey.operations.health import Health, MigrationReport, doctor, migrate, stats
from oncekey.operations.looking import (
    CHOICES,
    ID_DIGITS,
    Kept,
    Listing,
    Next,
    described,
    find,
    id_of,
    kept,
    listing,
    next_of,
)

__all__ = [
    "CHOICES",
    "ID_DIGITS",
    "Health",
    "Kept",
    "Listing",
    "MigrationReport",
    "Next",
    "PurgeReport",
    "SweepReport",
    "described",
    "doctor",
    "find",
    "id_of",
    "kept",
    "listing",
    "masked",
    "migrate",
    "next_of",
    "opened",
    "purge",
    "scrubbed",
    "stats",
    "sweep",
]
