from __future__ import annotations

from oncekey.operations.words import many


def test_one_is_not_many() -> None:
    """Numbers agree with what they count."""
    assert [many(count, "attempt") for count in (0, 1, 2)] == ["0 attempts", "1 attempt", "2 attempts"]
