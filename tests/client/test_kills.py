"""A small run of `python -m tests.client.kills`, which does it at full size."""

from __future__ import annotations

from pathlib import Path

from tests.client.kills import STEPS, run


def test_killed_clients_have_one_effect_each(tmp_path: Path) -> None:
    """Killed at each step, on a link that drops, delays and truncates: one effect, and the first answer."""
    done = run(tmp_path, intents=80, kills=len(STEPS))
    assert done.held, str(done)
    assert set(done.kills) == set(STEPS)
    assert min(done.fates[fate] for fate in ("lose-request", "lose-reply", "cut-reply", "delay")) >= 1
