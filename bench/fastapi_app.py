"""The payment as a FastAPI handler, for the peer that guards those. Imported in the peers' environment only."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from bench.traffic import CREATED, PAID, Count


class Payment(BaseModel):
    amount: int
    currency: str
    customer: str
    note: str


def fastapi(count: Count, guard: Callable[[Any], Any]) -> FastAPI:
    """The application, its handler guarded by `guard`."""
    app = FastAPI()

    async def pay(payment: Payment) -> dict[str, Any]:
        count.executions += 1
        return PAID

    app.post("/pay", status_code=CREATED)(guard(pay))
    return app
