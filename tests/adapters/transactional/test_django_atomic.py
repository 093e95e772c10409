"""A view that is guarded is taken out of ATOMIC_REQUESTS, and must not lose by that."""

from typing import Any

import pytest

from oncekey import OnceKey, Policy, by_header
from tests.adapters.transactional import apps
from tests.effects.kinds import ALIAS
from tests.effects.transaction.shop import Shop


@pytest.mark.parametrize("layer", ["decorator", "middleware"])
def test_a_request_without_a_key_is_atomic_as_ever(layer: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a key may be left out, such a request keeps the transaction that ATOMIC_REQUESTS gives to its view."""
    shop = Shop(f"sqlite:///{tmp_path}/app.db")
    shop.empty()
    policy = Policy(guarantee="transactional")
    guard = OnceKey(shop.url, scope=by_header("Authorization"), policy=policy, required=False).django(ALIAS)
    monkeypatch.setattr(apps, "guard", guard.middleware)
    view = apps.django_view(guard if layer == "decorator" else lambda view: view, login=False)
    middleware = () if layer == "decorator" else (f"{apps.__name__}.guard",)
    with apps.asked_of_django(shop.url, view, *middleware, atomic=True) as post:
        assert post(None, number="1", do="fail").status == 500
        assert post(None, number="2").status == 201
        assert post("k", number="3").status == 201
    assert shop.orders() == ["2", "3"]
