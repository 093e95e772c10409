"""Each candidate of our own virtual environment really guards: it executes once and replays the same bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.candidates import BY_NAME, FLOOR, OURS, STORES, TABLE, on
from bench.line import Line


def url_of(store: str, folder: Path, request: pytest.FixtureRequest) -> str:
    if store == "sqlite":
        return f"sqlite:///{folder / 'bench.db'}"
    return "memory://" if store == "memory" else str(request.getfixturevalue(f"{store}_url"))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("name", [FLOOR, OURS])
def test_candidate_executes_once_and_replays(
    name: str, store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Twenty keys make twenty payments, their replays none, and a replay has the bytes of the first answer."""
    with Line(BY_NAME[name], store, url_of(store, tmp_path, request), Path(sys.executable)) as line:
        order = {"seed": "test", "count": 20, "concurrency": 4}
        first = line.ask("run", phase="first", **order)
        assert (first["executions"], first["wall"] > 0, first["cpu"] > 0) == (20, True, True)
        assert line.ask("run", phase="replay", **order)["executions"] == 0
        line.ask("run", phase="first", seed="other", count=1, concurrency=1)
        if name == OURS:
            assert line.ask("same", seed="same") == {"same": True}


def test_bare_application_executes_every_time() -> None:
    """Without a layer a replay is a second payment: what the figures of `no layer` stand for."""
    with Line(BY_NAME["no layer"], "memory", "memory://", Path(sys.executable)) as line:
        for phase in ("first", "replay"):
            assert line.ask("run", phase=phase, seed="test", count=5, concurrency=2)["executions"] == 5


def test_what_a_candidate_raises_is_its_figure(tmp_path: Path) -> None:
    """A candidate without its database is broken, and its worker goes on."""
    nowhere = "redis://127.0.0.1:1/0"
    with Line(BY_NAME[FLOOR], "redis", nowhere, Path(sys.executable)) as line:
        answer = line.ask("run", phase="first", seed="test", count=5, concurrency=2)
        assert answer["broken"].startswith("ConnectionError")
        assert "broken" in line.ask("run", phase="first", seed="again", count=5, concurrency=2)


def test_every_store_has_a_floor_and_ours() -> None:
    """No store is measured without its measure, and names are unique."""
    for store in STORES:
        assert {FLOOR, OURS, "no layer"} <= {one.name for one in on(store)}
    assert len(BY_NAME) == len(TABLE)
