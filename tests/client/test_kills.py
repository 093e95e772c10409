"""What `python -m tests.client.kills` does, at its full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.kills import STEPS, run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_clients_have_one_effect_each(tmp_path: Path) -> None:
    """Killed at each step, on a link that drops, delays and truncates: one effect, and the first answer."""
    done = run(tmp_path, intents=1_000, kills=300)
    assert done.held, str(done)
    assert set(done.kills) == set(STEPS)
    assert min(done.fates[fate] for fate in ("lose-request", "lose-reply", "cut-reply", "delay")) >= 1
