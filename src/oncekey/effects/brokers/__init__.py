"""Brokers: what takes messages from an outbox (publishers), and what brings them to an inbox (consumers)."""
