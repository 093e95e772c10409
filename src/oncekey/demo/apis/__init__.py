"""The five APIs, one file each: what they ask of a request, what they tell of success, and how their errors look."""

from __future__ import annotations

from oncekey.demo.apis.adyen import ADYEN
from oncekey.demo.apis.api import Api, Call, Route
from oncekey.demo.apis.ietf import IETF
from oncekey.demo.apis.paypal import PAYPAL
from oncekey.demo.apis.square import SQUARE
from oncekey.demo.apis.stripe import STRIPE

APIS: tuple[Api, ...] = (IETF, STRIPE, SQUARE, ADYEN, PAYPAL)

__all__ = ["APIS", "Api", "Call", "Route"]
