"""The server of the kill tests: a guarded payments application, and a ledger that counts what was really done."""

from __future__ import annotations

import sqlite3
import sys
from secrets import token_hex

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from oncekey import OnceKeyMiddleware, by_header

LEDGER, STORE, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])


async def pay(request: Request) -> JSONResponse:
    asked = await request.json()
    made = token_hex(8)
    with sqlite3.connect(LEDGER, isolation_level=None) as ledger:
        ledger.execute("INSERT INTO effects (intent, made) VALUES (?, ?)", (asked["intent"], made))
    return JSONResponse({"id": made}, 201)


shop = Starlette(routes=[Route("/pay", pay, methods=["POST"])])
app = OnceKeyMiddleware(shop, store=STORE, scope=by_header("Authorization"))

if __name__ == "__main__":
    with sqlite3.connect(LEDGER) as made:
        made.execute("CREATE TABLE effects (intent TEXT NOT NULL, made TEXT NOT NULL)")
        made.execute("PRAGMA journal_mode = WAL")
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
