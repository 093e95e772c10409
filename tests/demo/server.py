"""`oncekey demo` as a child process, and requests to each of its APIs."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlencode

import httpx

from tests.infra import Server

# No assertion depends on how fast the machine is: this is only when a test gives up.
PATIENCE = 60.0


class DemoServer(Server):
    """The command line's demo. Its folder, port and data stay when it is started again."""

    name: ClassVar[str] = "oncekey demo"

    def __init__(self, store: str = "sqlite:///oncekey-demo/oncekey.db", workers: int = 2) -> None:
        super().__init__()
        self.store = store
        self.workers = workers
        # A connection for each request, so that any worker may get it.
        self.http = httpx.Client(timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        words = [sys.executable, "-m", "oncekey.cli.app", "demo", "--port", str(self.port)]
        return [*words, "--store", self.store, "--workers", str(self.workers)]

    def answers(self) -> bool:
        try:
            return self.http.get(f"{self.url}/healthz", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    def executions(self, ref: str) -> int:
        """How often the provider acted."""
        told = self.get("/__probe__/executions", params={"ref": ref})
        count: int = told.json()["executions"]
        return count

    def run_of(self, ref: str) -> dict[str, Any]:
        """The latest run of a ref; waits until there is one."""
        run: dict[str, Any] = until(lambda: next((run for run in self.recent()["runs"] if run["ref"] == ref), None))
        return run

    def recent(self) -> dict[str, Any]:
        """What the start page shows."""
        value: dict[str, Any] = self.get("/__probe__/recent").json()
        return value

    def send(self, ask: Ask) -> httpx.Response:
        """Send a request."""
        return self.http.request(ask.method, self.url + ask.path, headers=ask.headers, content=ask.body)

    def get(self, path: str, **more: Any) -> httpx.Response:
        """Look at something."""
        return self.http.get(self.url + path, **more)

    def close(self) -> None:
        super().close()
        self.http.close()


class Ask(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def fresh(prefix: str = "t") -> str:
    """A key, or a ref, that nobody has used."""
    return f"{prefix}-{uuid.uuid4().hex}"


def until(question: Callable[[], Any]) -> Any:
    """Ask until there is an answer."""
    end = time.monotonic() + PATIENCE
    while not (answer := question()):
        if time.monotonic() > end:
            raise TimeoutError("it never came about")
        time.sleep(0.05)
    return answer


# ---- a write to each API -----------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How one API's write looks. `key` is a header, or with a dot in front a member of the body."""

    path: str
    key: str
    caller: str
    form: bool
    success: tuple[int, int]
    id: tuple[str, ...]


KINDS: dict[str, Kind] = {
    "ietf": Kind("/orders", "Idempotency-Key", "Authorization", False, (201, 201), ("id",)),
    "stripe": Kind("/v1/charges", "Idempotency-Key", "Authorization", True, (200, 200), ("id",)),
    "stripe-customers": Kind("/v1/customers", "Idempotency-Key", "Authorization", True, (200, 200), ("id",)),
    "square": Kind("/v2/payments", ".idempotency_key", "Authorization", False, (200, 200), ("payment", "id")),
    "adyen": Kind("/v72/payments", "Idempotency-Key", "X-API-Key", False, (200, 200), ("pspReference",)),
    "paypal": Kind("/v2/checkout/orders", "PayPal-Request-Id", "Authorization", False, (201, 200), ("id",)),
    "paypal-refunds": Kind(
        "/v2/payments/captures/C1/refund", "PayPal-Request-Id", "Authorization", False, (201, 200), ("id",)
    ),
}
FIELDS: dict[str, dict[str, Any]] = {
    "stripe": {"amount": 500, "currency": "eur"},
    "square": {"source_id": "cnon:ok", "amount_money": {"amount": 500, "currency": "EUR"}},
}


def ask(api: str, key: str | None, marks: str = "", *, caller: str = "alice", **change: object) -> Ask:
    """A write to an API; `change` replaces fields of its body, None removes one."""
    kind = KINDS[api]
    headers = {
        kind.caller: caller,
        "Content-Type": "application/x-www-form-urlencoded" if kind.form else "application/json",
    }
    fields: dict[str, Any] = {**FIELDS.get(api, {}), "description": f"a test {marks}", **change}
    if key is not None and kind.key.startswith("."):
        fields[kind.key[1:]] = key
    elif key is not None:
        headers[kind.key] = key
    fields = {name: value for name, value in fields.items() if value is not None}
    body = urlencode(fields) if kind.form else json.dumps(fields)
    return Ask("POST", kind.path, headers, body.encode())


def id_of(api: str, answer: httpx.Response) -> str:
    """The id in a success."""
    value = answer.json()
    for name in KINDS[api].id:
        value = value[name]
    return str(value)
