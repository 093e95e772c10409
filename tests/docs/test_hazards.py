from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "hazards.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.*?) \|$", PAGE, re.MULTILINE)
HAZARDS = 126


def test_every_hazard_has_a_row_with_a_proof_or_a_reason() -> None:
    """Each number stands there once, in order, and says something."""
    assert [int(number) for number, _, _ in ROWS] == list(range(1, HAZARDS + 1))
    assert [number for number, _, proof in ROWS if not ("`" in proof or "*waits*" in proof)] == []


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`((?:tests|src)/[^`]+::[^`]+)`", PAGE))))
def test_each_test_that_is_named_exists(named: str) -> None:
    """A proof that was renamed or deleted is found here; it may be a method of a class that others inherit."""
    file, _, name = named.partition("::")
    assert re.search(rf"^(?:    )?(?:async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
