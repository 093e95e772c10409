"""Who is measured, on which stores, in which virtual environment. Nothing here imports a candidate."""

from __future__ import annotations

from typing import NamedTuple

STORES = ("memory", "sqlite", "redis", "postgres")
MAIN, PEERS = ".venv-bench", ".venv-peers"
FLOOR, OURS, BARE = "floor", "oncekey", "no layer"
FROM_STORE = f"{OURS}, no recall"


class Candidate(NamedTuple):
    """`build` names the function that makes it: module:function in bench."""

    name: str
    build: str
    stores: tuple[str, ...]
    venv: str = PEERS
    remark: str = ""


TABLE = (
    Candidate(BARE, "floors:bare", STORES, MAIN, "the application alone (Starlette)"),
    Candidate(FLOOR, "floors:floor", STORES, MAIN, "naive code by hand"),
    Candidate(OURS, "ours:oncekey", STORES, MAIN),
    Candidate(FROM_STORE, "ours:from_store", STORES, MAIN, "with recall_for=None: every replay asks the store"),
    Candidate("idemkit", "peers:idemkit", ("memory", "redis", "postgres")),
    Candidate("fastapi-idempotency", "peers:fastapi_idempotency", ("memory",)),
    Candidate("fastapi-idempotency-key", "peers:fastapi_idempotency_key", ("memory", "sqlite", "redis")),
    Candidate("ichido", "peers:ichido", ("redis",)),
    Candidate("asgi-idempotency-header", "peers:asgi_idempotency_header", ("memory", "redis")),
    Candidate("no layer (FastAPI)", "peers:bare_fastapi", ("memory", "redis"), PEERS, "what mobius needs below it"),
    Candidate("mobius-idempotence-library", "peers:mobius", ("memory", "redis"), PEERS, "guards a FastAPI handler"),
)
BY_NAME = {candidate.name: candidate for candidate in TABLE}


def on(store: str, names: list[str] | None = None) -> list[Candidate]:
    """The candidates for one store, all or the named ones."""
    return [one for one in TABLE if store in one.stores and (names is None or one.name in names)]
