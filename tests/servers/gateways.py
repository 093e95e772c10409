"""The servers under test, as their users start them, each with one worker."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from oncekey.core.record import Record
from oncekey.stores.open import open_store
from tests.infra.process import STOP_WITHIN, Server, send
from tests.servers.client import Answer, ask
from tests.servers.ledger import FOLDER, Ledger
from tests.servers.settings import LEASE, STORE, record_id

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Kind:
    """One server and its options; what it can do beyond one request at a time."""

    name: str
    interface: str
    words: tuple[str, ...]
    concurrent: bool = True
    keeps_alive: bool = True
    buffers: bool = False  # the whole upload, before the application is called


def gunicorn(worker: str, *more: str) -> tuple[str, ...]:
    return (
        "gunicorn",
        "-b",
        "127.0.0.1:{port}",
        "-k",
        worker,
        "--graceful-timeout",
        "1",
        "--no-control-socket",
        *more,
        "{app}",
    )


UVICORN = ("uvicorn", "--port", "{port}", "--ws", "wsproto", "--timeout-graceful-shutdown", "1", "{app}")
HYPERCORN = ("hypercorn", "-b", "127.0.0.1:{port}", "--graceful-timeout", "1", "{app}")
GRANIAN = ("granian", "--interface", "asgi", "--port", "{port}", "--workers-kill-timeout", "2", "{app}")
WAITRESS = ("waitress", "--listen=127.0.0.1:{port}", "--threads=8", "{app}")

KINDS = (
    Kind("uvicorn", "asgi", UVICORN),
    Kind("hypercorn", "asgi", HYPERCORN),
    Kind("granian", "asgi", GRANIAN),
    Kind("gunicorn-asgi", "asgi", gunicorn("asgi", "--asgi-disconnect-grace-period", "0")),
    Kind("gunicorn-sync", "wsgi", gunicorn("sync"), concurrent=False, keeps_alive=False),
    Kind("gunicorn-gthread", "wsgi", gunicorn("gthread", "--threads", "8")),
    Kind("waitress", "wsgi", WAITRESS, buffers=True),
)

ASGI = tuple(kind for kind in KINDS if kind.interface == "asgi")


class Gateway(Server):
    """One running server."""

    def __init__(self, kind: Kind, shared: Path, lease_for: float) -> None:
        super().__init__()
        self.kind = kind
        self.shared = shared
        self.lease_for = lease_for

    @property
    def name(self) -> str:  # type: ignore[override] # one class for all kinds
        return self.kind.name

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        places = {"port": self.port, "app": f"tests.servers.{self.kind.interface}_app:app"}
        settings = {
            "PYTHONPATH": f"{ROOT}/src:{ROOT}",
            FOLDER: self.shared,
            STORE: f"sqlite:///{self.shared}/oncekey.db",
            LEASE: self.lease_for,
        }
        variables = [f"{name}={value}" for name, value in settings.items()]
        return ["env", *variables, sys.executable, "-m", *(word.format(**places) for word in self.kind.words)]

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return ask(self.port, "/ready?ready", body=b"", method="GET").status == 200
        return False

    def end_with(self, then: Callable[[], object]) -> None:
        """Ask it to end (SIGTERM), do something meanwhile, and wait until it has ended."""
        send(self.pid, signal.SIGTERM)
        then()
        if self._process is not None:
            self._process.wait(STOP_WITHIN)

    def ask(self, path: str, key: str, body: bytes | None = None) -> Answer:
        """One request, its reference the key unless a body says otherwise."""
        return ask(self.port, path, key, body=key.encode() if body is None else body)

    def final(self, path: str, key: str) -> Answer:
        """Ask until the operation is no longer in progress."""
        while True:
            answer = self.ask(path, key)
            if answer.problem != "in-progress":
                return answer


class Pair:
    """Two servers of a kind on one store, and the ledger of what they did."""

    def __init__(self, kind: Kind, shared: Path, lease_for: float = 5.0) -> None:
        self.kind = kind
        self.ledger = Ledger(shared)
        self.store = open_store(f"sqlite:///{shared}/oncekey.db")
        self.store.migrate()
        self.first = Gateway(kind, shared, lease_for)
        self.second = Gateway(kind, shared, lease_for)

    def __enter__(self) -> Self:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(Server.start, (self.first, self.second)))
        return self

    def __exit__(self, *exc: object) -> None:
        for gateway in (self.first, self.second):
            gateway.kill()
            gateway.close()
        self.store.close()

    def record(self, path: str, key: str) -> Record | None:
        """The record of an operation."""
        seen = self.store.get(record_id(path, key))
        return seen.record if seen is not None else None

    def effects(self, ref: str) -> int:
        return self.ledger.count(ref)
