"""The real command line as a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ONCEKEY = str(Path(sys.executable).with_name("oncekey"))
# What the machine of a test may set, and what would change the output.
OURS = ("ONCEKEY_STORE", "ONCEKEY_DEBUG", "ONCEKEY_SEAL_KEYS", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PYTHONUNBUFFERED")


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The JSON objects on standard output, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**extra: str) -> dict[str, str]:
    """The environment of a command, without what would change it."""
    return {name: value for name, value in os.environ.items() if name not in OURS} | extra


def oncekey(*words: str, given: str = "", folder: Path | None = None, **extra: str) -> Ran:
    """Run one command to its end."""
    ran = subprocess.run(
        [ONCEKEY, *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(**extra),
        cwd=folder,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)
