"""kill -9 at every step, and what else ends a transaction without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oncekey import NotGranted
from oncekey.core.record import State
from tests.docs.pages import ROOT
from tests.effects.kinds import SYNC, Kind, named
from tests.effects.transaction.shop import Shop

CHILD = Path(__file__).with_name("child.py")
NATIVE = [kind for kind in SYNC if kind.name in {"psycopg", "sqlite3"}]


@pytest.mark.parametrize("kind", NATIVE, ids=named)
def test_kill_at_every_step(kind: Kind, shop: Shop) -> None:
    """Nothing or everything: a dead process leaves no order or one, and its retry always ends with one."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    ran = subprocess.run(
        [sys.executable, str(CHILD), shop.url],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    steps = json.loads(ran.stdout)
    assert len(steps) > 6
    assert {after for _, after in steps} == {1}
    # The commit is where nothing turns into everything, and it is never undone.
    before = [dead for dead, _ in steps]
    assert before == sorted(before)
    assert set(before) == {0, 1}


def commit_and_die(shop: Shop, connection: Any, key: str) -> None:
    with shop.once.transaction(connection, key=key, operation="order"):
        connection.execute("INSERT INTO orders (number) VALUES ('1')")
        connection.execute("COMMIT")
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", NATIVE, ids=named)
def test_dying_after_a_commit_of_ones_own_is_no_licence(kind: Kind, url: str) -> None:
    """The claim that was committed without its outcome turns unknown; nobody takes it over."""
    shop = Shop(url, lease_for=0.05)
    shop.empty()
    key = shop.key()
    with kind.opened(shop.url) as connection, pytest.raises(KeyboardInterrupt):
        commit_and_die(shop, connection, key)
    time.sleep(0.06)
    with kind.opened(shop.url) as connection, pytest.raises(NotGranted) as refused:
        shop.once.transaction(connection, key=key, operation="order").__enter__()
    assert refused.value.reason == "outcome-unknown"
    record = shop.record(key)
    assert record is not None
    assert record.state is State.EXECUTING
    assert not record.guarantee.may_take_over
