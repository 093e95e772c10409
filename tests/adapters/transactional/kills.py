"""Orders over HTTP in servers that kill themselves, each one step later: `kills.py URL SERVER`.

A step is before or after each thing that the session is told, and before or after each message of the answer. Printed
is, for each: orders and kept answers when the process is dead, orders when a retry has ended, whether that was a
replay, and whether a client that had an answer before has got the same one.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import uvicorn
from sqlalchemy import NullPool, create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from oncekey.core.record import State
from oncekey.effects.on_sqlalchemy import SqlalchemyLink
from tests.adapters.transactional import apps
from tests.adapters.transactional.apps import Answer
from tests.effects.kinds import engine_url
from tests.effects.transaction.child import Fuse
from tests.effects.transaction.shop import Shop

LONG = 60  # seconds after which a server is none that anybody needs


class Burning:
    """An ASGI application whose answers burn the fuse."""

    def __init__(self, app: Any, fuse: Fuse) -> None:
        self.app, self.fuse = app, fuse

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            self.fuse.burn()
            await send(message)
            self.fuse.burn()

        await self.app(scope, receive, sent if scope.get("method") == "POST" else send)


class Burnt:
    """The same for WSGI."""

    def __init__(self, app: Any, fuse: Fuse) -> None:
        self.app, self.fuse = app, fuse

    def __call__(self, environ: Any, start_response: Any) -> Iterator[bytes]:
        chunks, burns = list(self.app(environ, start_response)), environ["REQUEST_METHOD"] == "POST"
        if burns:
            self.fuse.burn()
        yield from chunks
        if burns:
            self.fuse.burn()


def fastapi_server(url: str, fuse: Fuse, listener: socket.socket) -> Callable[[], None]:
    engine = create_engine(engine_url(url), poolclass=NullPool)

    def get_session() -> Iterator[Session]:
        with Session(engine) as own:
            yield own

    app = Burning(apps.fastapi_app(apps.installation(url), get_session), fuse)
    config = uvicorn.Config(app, log_level="critical", ws="wsproto", lifespan="off")
    config.load()
    return lambda: uvicorn.Server(config).run(sockets=[listener])


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


def flask_server(url: str, fuse: Fuse, listener: socket.socket) -> Callable[[], None]:
    session = scoped_session(sessionmaker(create_engine(engine_url(url), poolclass=NullPool)))
    app = apps.flask_app(apps.installation(url), session, lambda: session)
    app.teardown_appcontext(lambda error: session.remove())
    server = WSGIServer(listener.getsockname(), Quiet, bind_and_activate=False)
    server.socket, server.server_name, server.server_port = listener, "localhost", 80
    server.setup_environ()
    server.set_app(Burnt(app, fuse))
    return server.serve_forever


SERVERS = {"fastapi": fastapi_server, "flask": flask_server}


class House:
    """Servers on one socket, one at a time."""

    def __init__(self, server: str, url: str) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.fuse = Fuse(10_000)
        self.serve = SERVERS[server](url, self.fuse, self.listener)

    def start(self, steps: int) -> int:
        """A server that dies at this step."""
        child = os.fork()
        if child == 0:
            signal.alarm(LONG)
            self.fuse.left = steps
            for name in ("take", "execute", "ask", "commit"):
                self.fuse.watch(SqlalchemyLink, name)
            self.serve()
            os._exit(0)
        return child

    def died(self, child: int, key: str) -> bool:
        """Whether the server has ended, or answers another request."""
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            # The socket is ours too, so nobody refuses a request to the dead: it waits for their successor.
            if self.ask("GET", key, 0.2) is not None:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False
        return True

    def ask(self, method: str, key: str, within: float = LONG) -> Answer | None:
        """One request; None if nobody is there to answer it."""
        client = http.client.HTTPConnection("127.0.0.1", self.listener.getsockname()[1], timeout=within)
        try:
            headers = apps.headers(key) | {"Content-Type": "application/json", "Connection": "close"}
            client.request(method, "/orders", json.dumps({"number": key}), headers)
            answer = client.getresponse()
            return Answer(answer.status, dict(answer.headers), answer.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            client.close()


def main(url: str, server: str) -> None:
    shop, mortal, survivor = Shop(url), House(server, url), House(server, url)
    child = survivor.start(10_000)
    found: list[Any] = []
    died = True
    while died:
        key = shop.key()
        victim = mortal.start(len(found))
        first = mortal.ask("POST", key)
        died = mortal.died(victim, key)
        record = shop.record(key)
        dead = shop.orders().count(key), int(record is not None and record.state is State.COMPLETED)
        again = survivor.ask("POST", key)
        if again is None or again.status != HTTPStatus.CREATED:
            raise SystemExit(f"the retry after step {len(found)} got {again}")
        same = first is None or first.body == again.body
        found.append((*dead, shop.orders().count(key), again.replayed, same))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
