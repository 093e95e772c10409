"""Every rule of the table and of the contract, as a scenario that runs on any store in either colour."""

from __future__ import annotations

from oncekey.testing.scenarios import (
    claiming,
    contention,
    journals,
    leases,
    listing,
    moving,
    retention,
    settling,
    swapping,
)
from oncekey.testing.scenarios.registry import SCENARIOS, Scenario

ROOMS = (claiming, leases, journals, settling, swapping, retention, listing, moving, contention)

__all__ = ["ROOMS", "SCENARIOS", "Scenario"]
