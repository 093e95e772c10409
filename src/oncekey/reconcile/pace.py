"""How often an unknown outcome is asked about, and when that is given up."""

from __future__ import annotations

from dataclasses import dataclass, fields

from oncekey.core.policy import ms
from oncekey.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds. The waits double from `first_for` to `most_for`, each up to a half shorter, so that they spread.

    `tries`: after so many without an answer it is a dead letter, None: never. `answer_for`: how long one inquiry may
    take; after that another worker may ask. `poll_for`: how often the queue is looked at while it is empty.
    `sweep_for`: how often lapsed leases are swept, None: somebody else does. `at_once`: how many are asked about at
    the same time.
    """

    first_for: float = 5.0
    most_for: float = 3600.0
    tries: int | None = 20
    answer_for: float = 60.0
    poll_for: float = 1.0
    sweep_for: float | None = 5.0
    at_once: int = 8

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None and one.name in ("tries", "sweep_for"):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise ConfigurationError(f"{one.name}={value!r} makes no sense: write a number above 0")
        if self.most_for < self.first_for:
            raise ConfigurationError(f"most_for={self.most_for:g} is shorter than first_for={self.first_for:g}")

    def wait(self, tries: int, draw: float) -> int:
        """How long to wait after so many tries, in milliseconds; `draw` is a number from 0 to below 1."""
        doubled = self.first_for * 2.0 ** min(tries - 1, 60)
        return ms(min(doubled, self.most_for) * (1 - draw / 2))

    def given_up(self, tries: int) -> bool:
        """Whether that was the last try."""
        return self.tries is not None and tries >= self.tries
