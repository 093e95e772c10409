"""What the workers must know, handed to them through their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_PREFIX = "ONCEKEY_DEMO_"


class Settings(NamedTuple):
    """One run of the demo.

    `ledger` is the provider's file, `shared` a folder that lives as long as the run, `token` what opens the console.
    """

    store: str
    ledger: Path
    shared: Path
    workers: int
    starter: int
    token: str

    def to_environment(self) -> dict[str, str]:
        """As environment variables."""
        return {_PREFIX + name.upper(): str(value) for name, value in self._asdict().items()}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """The same, read back."""
        given = {name: environment[_PREFIX + name.upper()] for name in cls._fields}
        folders = Path(given["ledger"]), Path(given["shared"])
        return cls(given["store"], *folders, int(given["workers"]), int(given["starter"]), given["token"])
