"""The shop: takes orders over HTTP. The key, the order, its message and the answer are one transaction.

Runs by itself: `DATABASE=postgresql://... PORT=8000 python -m examples.orders.shop`
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse
from psycopg_pool import ConnectionPool
from pydantic import BaseModel

from oncekey import NotGranted, OnceKey, Outbox, Policy, by_header

DATABASE = os.environ.get("DATABASE", "postgresql://localhost/orders")
QUEUE = os.environ.get("QUEUE", "orders")

once = OnceKey(DATABASE, scope=by_header("Authorization"), policy=Policy(guarantee="transactional"))
outbox = Outbox()
pool = ConnectionPool(DATABASE, max_size=8, open=False)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect when the server starts."""
    pool.open()
    yield
    pool.close()


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    """What a customer sends."""

    item: str


@app.post("/orders", status_code=201)
def place_order(
    order: Order, idempotency_key: Annotated[str, Header()], authorization: Annotated[str, Header()]
) -> dict[str, Any]:
    """Keep an order and the message that ships it; a retry with the same key is given the same order."""
    asked = order.model_dump()
    with once.transaction(
        pool, key=idempotency_key, operation="POST /orders", caller=authorization, body=asked
    ) as transaction:
        if not transaction.replayed:
            placed = insert(transaction.connection, authorization, order)
            outbox.stage(transaction.connection, QUEUE, placed)
            transaction.complete(placed)
    return transaction.value  # type: ignore[no-any-return]  # by now it is committed


def insert(connection: Any, customer: str, order: Order) -> dict[str, Any]:
    """One row; the database numbers it."""
    rows = connection.execute(
        "INSERT INTO orders (customer, item) VALUES (%s, %s) RETURNING number", (customer, order.item)
    )
    return {"number": rows.fetchone()[0], "item": order.item}


@app.exception_handler(NotGranted)
def refuse(request: Request, refused: NotGranted) -> JSONResponse:
    """Another attempt is running, or the key was used for something else: say so, in words that clients know."""
    headers = {"Idempotency-Problem": refused.reason}
    if refused.after is not None:
        headers["Retry-After"] = str(max(1, round(refused.after)))
    return JSONResponse({"title": str(refused)}, refused.status, headers)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), log_level="warning")
