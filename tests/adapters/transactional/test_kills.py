"""kill -9 of a real server at every step of a request: around the claim, the commit, and the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.transactional.apps import Kind
from tests.docs.pages import ROOT
from tests.effects.transaction.shop import Shop

CHILD = Path(__file__).with_name("kills.py")
RUNS = [("fastapi", "postgresql"), ("flask", "sqlite")]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind(name, database, lambda: None) for name, database in RUNS], ids=lambda k: k[:2])  # type: ignore[arg-type,return-value]
def test_orders_are_kept_answers(kind: Kind, shop: Shop) -> None:
    """Dead, a server leaves an order and its answer, or neither. The retry is given the answer, or writes the order."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", str(CHILD), shop.url, kind.name],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    steps = json.loads(ran.stdout)
    assert len(steps) > 8
    for orders, kept, after, replayed, same in steps:
        assert (orders, after, same) == (kept, 1, True)
        assert replayed is bool(kept)
    # The commit is where nothing turns into everything, and it is never undone.
    before = [kept for _, kept, *_ in steps]
    assert before == sorted(before)
    assert set(before) == {0, 1}
