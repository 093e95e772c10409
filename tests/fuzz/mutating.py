"""Changes bytes a little, the same way each time: what `make test` does, and `make fuzz` where there is no atheris."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\r\n",
    b'"',
    b"\\",
    b",",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"{",
    b"e9",
)
MOST_CHANGES = 4


def mutants(seeds: Sequence[bytes], times: int | None, seed: int) -> Iterator[bytes]:
    """So many changed ones, or without an end."""
    dice = random.Random(seed)
    for _ in itertools.count() if times is None else range(times):
        data = bytearray(dice.choice(seeds))
        for _ in range(dice.randint(1, MOST_CHANGES)):
            _change(data, dice, seeds)
        yield bytes(data)


def _change(data: bytearray, dice: random.Random, seeds: Sequence[bytes]) -> None:
    at = dice.randint(0, len(data))
    how = dice.randrange(6)
    if how == 0 and at < len(data):
        data[at] ^= 1 << dice.randrange(8)
    elif how == 1 and at < len(data):
        data[at] = dice.randrange(256)
    elif how == 2:
        data[at:at] = dice.choice(INTERESTING)
    elif how == 3:
        del data[at : at + dice.randint(1, 4)]
    elif how == 4:
        other = dice.choice(seeds)
        cut = dice.randint(0, len(other))
        data[at:] = other[cut:]
    else:
        data[at : at + 1] = data[at : at + dice.randint(1, 8)] * 2
