"""Publishers: where an outbox's messages go, by URL. Each confirms a message only when its broker has."""

from oncekey.effects.brokers.publishers.open import open_publisher

__all__ = ["open_publisher"]
