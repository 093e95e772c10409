"""How long a message is remembered, and whether that is long enough. Pure.

A message that comes again after it was forgotten is a new message to us. So it must be remembered for at least as long
as it can come again: the broker's own redelivery, a seek to the past, and whatever is sent back from a dead letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oncekey.errors import ConfigurationError

DAY: Final = 86_400.0
FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Window:
    """`keep_for` seconds are remembered (None: for ever); `redelivery_for` is what the user says of the broker."""

    keep_for: float | None
    redelivery_for: float | None

    def __post_init__(self) -> None:
        """Refuse what makes no sense, or would forget too early."""
        for name in ("keep_for", "redelivery_for"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not 0 < value < FOREVER):
                raise ConfigurationError(f"{name}={value!r} makes no sense: write a number of seconds above 0, or None")
        if self.redelivery_for is not None:
            self._check(self.redelivery_for, f"redelivery_for={self.redelivery_for:g}")

    def check(self, horizon: float | None, broker: str) -> None:
        """Compare with what the broker says of itself: for how long it may bring a message again (None: no end)."""
        if horizon is not None:
            self._check(horizon, f"{broker} keeps messages for {horizon:g} s, which")
        elif self.keep_for is not None and self.redelivery_for is None:
            raise ConfigurationError(
                f"{broker} keeps messages for ever, so one may come again after keep_for={self.keep_for:g} s and be "
                f"run twice: write redelivery_for=, the longest time after which you would replay, with dead letters; "
                f"or keep_for=None, which forgets nothing; or use ordered mode, which needs no window"
            )

    def _check(self, horizon: float, says: str) -> None:
        if self.keep_for is not None and self.keep_for < horizon:
            raise ConfigurationError(
                f"{says} is longer than keep_for={self.keep_for:g}: a message that comes again after it was forgotten "
                f"would be run twice; write keep_for={horizon:g} or more (time for replays from dead letters included)"
            )

    def late(self, sent_at: float | None, now: float) -> bool:
        """Whether a message is so old that it may have been handled and forgotten."""
        return sent_at is not None and self.keep_for is not None and now - sent_at > self.keep_for
