from __future__ import annotations

import pytest

from tests.fuzz.mutating import mutants
from tests.fuzz.seeds import CORPUS, seeds
from tests.fuzz.targets import TARGETS

EACH = 600


@pytest.mark.parametrize("name", TARGETS)
def test_no_bytes_break_a_rule(name: str) -> None:
    """What is good, what went wrong once, and what comes of changing them a little: `make fuzz` goes on from there."""
    for data in seeds(name):
        TARGETS[name](data)
    for data in mutants(seeds(name), EACH, seed=1):
        TARGETS[name](data)


def test_every_finding_belongs_to_a_target() -> None:
    """A renamed target takes its findings along."""
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} <= TARGETS.keys()
