from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import on_missing
from tests.infra import EngineMissing, RedisServer
from tests.infra.postgres import programs

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faults_on_every_store_break_no_rule() -> None:
    """A minute and a half of kills, pauses, broken links and lost stores: no rule broken, and enough has happened."""
    try:
        programs()
        RedisServer.program()
    except EngineMissing as missing:
        on_missing(missing)
    words = [sys.executable, "-m", "tests.chaos", "--seconds", "90"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
