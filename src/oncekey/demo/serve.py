"""`oncekey demo`: check everything that can be checked before a worker starts, say what happens, and serve."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from oncekey.console.access import checked_token, new_token
from oncekey.demo.ledger import Ledger
from oncekey.demo.settings import Settings
from oncekey.errors import ConfigurationError, OnceKeyError, UnsafeStore
from oncekey.operations import masked, migrate
from oncekey.stores.open import open_store

HOST = "127.0.0.1"
PORT = 8000
WORKERS = 2
FOLDER = Path("oncekey-demo")
STORE = f"sqlite:///{FOLDER}/oncekey.db"
LEDGER = "provider-ledger.db"
# What opens the console; made up for this run where it is not set.
TOKEN = "ONCEKEY_CONSOLE_TOKEN"  # noqa: S105 - where one is found
# How long requests that are under way at Ctrl-C may run on.
GRACE_FOR = 5
READY_WITHIN = 30.0


def run(*, host: str = HOST, port: int = PORT, store: str | None = None, workers: int | None = None) -> None:
    """Serve until interrupted. What is wrong with the choices is raised before it starts, in words for a terminal."""
    store, workers = store or STORE, workers or WORKERS
    _check_workers(store, workers)
    token = checked_token(os.environ.get(TOKEN) or new_token())
    port = _check_port(host, port)
    ledger = _folder() / LEDGER
    _prepare(store, ledger)
    with _shared_folder() as shared:
        settings = Settings(store, ledger, shared, workers, os.getpid(), token)
        os.environ.update(settings.to_environment())
        _announce(settings)
        ready = threading.Event()
        threading.Thread(target=_say_when_ready, args=(host, port, token, ready), daemon=True).start()
        _serve(host, port, workers)
    if not ready.is_set():
        raise OnceKeyError("the demo ended before it was ready; if that was not your doing, its messages above say why")
    print("The demo has ended. What it stored is kept; run it again and it goes on from there.")


def _serve(host: str, port: int, workers: int) -> None:
    # With one worker the server ends by raising the signal that ended it once more; Ctrl-C and SIGTERM are one to us.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        uvicorn.run(
            "oncekey.demo.lifespan:application",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_FOR,
        )
    except KeyboardInterrupt:
        pass
    except SystemExit as end:
        if end.code:
            raise ConfigurationError("the server could not start; its own message above says why") from end
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- before anything starts --------------------------------------------------------------------------------------


def _check_workers(store: str, workers: int) -> None:
    if workers > 1 and store.lower().startswith("memory:"):
        raise ConfigurationError(
            f"memory:// is one process's own memory, and {workers} workers would each keep their own keys: write "
            f"--workers 1, or leave out --store to use an SQLite file"
        )


def _check_port(host: str, port: int) -> int:
    """The port, a free one for 0."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ConfigurationError(_port_trouble(host, port, error)) from error


def _port_trouble(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65_535 else PORT  # noqa: PLR2004 - the last port
        return f"port {port} on {host} is taken: stop what listens there, or write --port {other}"
    if error.errno == errno.EACCES:
        return f"port {port} needs more rights than you have: write --port {PORT}, or any other above 1023"
    return f"{host}:{port} is not an address to listen on here ({error.strerror or error}): write --host {HOST}"


def _folder() -> Path:
    folder = FOLDER.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the demo keeps its files in {folder}, which cannot be made ({error.strerror}): start it in a folder that "
            f"you may write to"
        ) from error
    return folder


def _prepare(url: str, ledger: Path) -> None:
    """Make the tables of both sides, and refuse a store that could lose records."""
    store = open_store(url)
    try:
        migrate(store)
        findings = store.check()
    finally:
        store.close()
    for finding in findings:
        if finding.level == "refusal":
            raise UnsafeStore(f"{finding.what}: {finding.fix}")
        if finding.level == "warning":
            print(f"  note: {finding.what}: {finding.fix}")
    book = Ledger(ledger)
    try:
        book.prepare()
    finally:
        book.close()


@contextlib.contextmanager
def _shared_folder() -> Iterator[Path]:
    """Where the workers of this run put their counters and the latest requests."""
    folder = Path(tempfile.mkdtemp(prefix="oncekey-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- what is said ------------------------------------------------------------------------------------------------


def _announce(settings: Settings) -> None:
    several = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
    print("OnceKey demo: a payments API with five dialects, and a provider that charges each time it is asked.")
    print(f"  keys      {masked(settings.store)}")
    print(f"  provider  {settings.ledger}   (its own ledger, which knows nothing of keys)")
    print(f"  starting {several} ...", flush=True)


def _say_when_ready(host: str, port: int, token: str, ready: threading.Event) -> None:
    shown = {"0.0.0.0": HOST, "::": "::1", "": HOST}.get(host, host)  # noqa: S104 - told, not bound
    deadline = time.monotonic() + READY_WITHIN
    while not _healthy(shown, port):
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    ready.set()
    base = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
    print(WELCOME.format(base=base, token=token), flush=True)


def _healthy(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


WELCOME = """
Listening on {base}   (Ctrl-C ends it)

Open {base}/ in a browser, or try it here. The same order twice, and one charge:

  curl -i {base}/orders -H 'Authorization: Bearer alice' -H 'Idempotency-Key: try-1' \\
       -H 'Content-Type: application/json' -d '{{"item": "tea", "note": "probe:ref=try-1"}}'

Run that line again, then ask the provider how often it acted:

  curl '{base}/__probe__/executions?ref=try-1'

The console, where unknown outcomes are seen and settled: {base}/console/
  token     {token}
"""
