"""Tests of this folder that make their own examples, and that `make fuzz` drives with coverage as well."""

from __future__ import annotations

from typing import Any

from tests.fuzz import test_asgi, test_rows, test_wsgi

PROPERTIES: dict[str, Any] = {
    "asgi-messages": test_asgi.test_every_sequence_ends_as_the_specification_says,
    "wsgi-calls": test_wsgi.test_every_order_of_calls_ends_as_the_specification_says,
    "sqlite-row": test_rows.test_a_row_of_sqlite_is_a_record_or_refused,
    "postgres-row": test_rows.test_a_row_of_postgres_is_a_record_or_refused,
}
