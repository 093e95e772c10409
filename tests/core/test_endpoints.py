from __future__ import annotations

import pytest

from oncekey.core.keys import endpoint_of, scope_of


@pytest.mark.parametrize("path", ["/orders", "/orders/", "//orders", "/orders//", "///orders///"])
def test_one_spelling_of_an_endpoint(path: str) -> None:
    """Doubled and trailing slashes do not make another operation."""
    assert endpoint_of("POST", path) == "POST /orders"


@pytest.mark.parametrize(
    ("method", "path"), [("PATCH", "/orders"), ("POST", "/Orders"), ("POST", "/orders/7"), ("POST", "/")]
)
def test_other_endpoints_are_others(method: str, path: str) -> None:
    """Method, letters and further parts do."""
    ids = {scope_of("alice", endpoint_of(*both))[0].record_id("k") for both in ((method, path), ("POST", "/orders"))}
    assert len(ids) == 2
