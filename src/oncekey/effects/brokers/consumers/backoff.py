"""How long a consumer waits before it tries a broker again that was in trouble."""

from __future__ import annotations

import secrets

_chance = secrets.SystemRandom()


class BackOff:
    """Twice as long each time up to a limit, less a random part: consumers must not all come back at one moment."""

    def __init__(self, first_for: float = 0.2, most_for: float = 30.0) -> None:
        self.first_for = first_for
        self.most_for = most_for
        self._failures = 0

    def over(self) -> None:
        """The broker works again."""
        self._failures = 0

    def next_for(self) -> float:
        """The next wait, in seconds."""
        longest = min(self.most_for, self.first_for * 2 ** min(self._failures, 20))
        self._failures += 1
        return _chance.uniform(longest / 2, longest)
