"""`oncekey console`: the console alone, on a port of its own."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys

from oncekey.cli.exits import Exit
from oncekey.cli.naming import ring
from oncekey.errors import ConfigurationError, MissingExtra, StoreUnavailable
from oncekey.operations import doctor, masked, opened

try:
    import uvicorn

    from oncekey.console import Console
    from oncekey.console.access import new_token
except ModuleNotFoundError as missing:
    if (missing.name or "").startswith("oncekey"):
        raise
    raise MissingExtra("oncekey console", "console") from missing

TOKEN = "ONCEKEY_CONSOLE_TOKEN"  # noqa: S105 - where one is found
# How long requests that are under way at Ctrl-C may run on.
GRACE_FOR = 5
HERE = ("127.0.0.1", "::1", "localhost")


def serve(given: argparse.Namespace) -> Exit:
    """Serve until interrupted."""
    given_token = os.environ.get(TOKEN, "")
    token = given_token or new_token()
    store = opened(given.store, store_for=given.store_for)
    try:
        console = Console(store, token=token, sealer=ring(), counts=given.metrics)
        health = doctor(store)
        if not health.reachable:
            raise StoreUnavailable(health.findings[0].what)
        with _listening(given.host, given.port) as listening:
            _announce(given, listening, "" if given_token else token)
            _serve(console, listening)
    finally:
        store.close()
    return Exit.OK


def _listening(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        # Of a system's own errors Python tells at length what it was doing; those of names have no number above 0.
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on ({why}): write another --host or --port"
        ) from error


def _announce(given: argparse.Namespace, listening: socket.socket, token: str) -> None:
    host, port = listening.getsockname()[:2]
    print(f"The console of {masked(given.store)}")
    print(f"  open   http://{f'[{host}]' if ':' in host else host}:{port}/")
    print(f"  token  {token or f'as {TOKEN} has it'}")
    if given.host not in HERE:
        print("  note   it speaks plain HTTP: put a proxy with TLS in front of it")
    print("Ctrl-C ends it.", flush=True)


def _serve(console: Console, listening: socket.socket) -> None:
    server = uvicorn.Server(
        uvicorn.Config(
            console,
            ws="none",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_FOR,
            lifespan="on",
        )
    )
    # The server ends by raising the signal that ended it once more; Ctrl-C and SIGTERM are one to us.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        print("The console has ended.", file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, before)
