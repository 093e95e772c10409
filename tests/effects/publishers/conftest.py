from __future__ import annotations

from tests.effects.outbox.conftest import outbox_postgres, postgres, sqlite

__all__ = ["outbox_postgres", "postgres", "sqlite"]
