from __future__ import annotations

from pathlib import Path

import pytest

from bench.drain import drain, fill

RECORDS, PROCESSES = 300, 3


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_a_heap_is_drained_by_several_processes_without_a_double_call(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every unknown outcome is asked about exactly once, by the receiver's own ledger."""
    url = f"sqlite:///{tmp_path}/drain.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    fill(url, RECORDS)
    found = drain(url, PROCESSES, tmp_path)
    assert (found.calls, found.doubles, found.left) == (RECORDS, 0, 0)
    assert sum(found.by_process) == RECORDS
