"""OnceKey for any WSGI application: `OnceKeyWSGI(app, store=..., scope=...)`.

What is not ours passes untouched: other methods, and requests without a key where none is required. The application
runs, iterable and `close()` included, before anything is told to the client; its outcome is stored before the status
line goes out.

WSGI has no start and stop of its own. The store is checked at the first guarded request (or by `check()`, earlier), and
running work is waited for when the interpreter ends (or by `shutdown()`, earlier).

The application finds its operation in `environ["oncekey.operation"]`.

A server that reads `Idempotency_Key` as `Idempotency-Key` does so before WSGI: there is no telling them apart here.
Sent together they arrive joined by a comma, and are refused. Gunicorn and waitress drop names with underscores.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from oncekey.adapters.wsgi_answer import told
from oncekey.adapters.wsgi_duty import GRACE_FOR, Duty
from oncekey.adapters.wsgi_shadow import WsgiShadow
from oncekey.adapters.wsgi_upload import OPERATION, read, request_of, with_body
from oncekey.adapters.wsgi_work import Work
from oncekey.core.decision import Execute
from oncekey.core.keys import key_ref
from oncekey.engine.attempt import Attempt
from oncekey.engine.common import give_back, say_recalled
from oncekey.engine.events import log
from oncekey.engine.threaded import Engine
from oncekey.engine.tuning import Tuning
from oncekey.errors import OnceKeyError, RequestRefused
from oncekey.http.answer import refuse
from oncekey.http.gate import Choices, Gate
from oncekey.http.messages import Reply
from oncekey.http.shadow import ShadowGate

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from oncekey.engine.events import Sink
    from oncekey.http.exchange import Exchange
    from oncekey.http.messages import Request
    from oncekey.stores.contract import Store


class OnceKeyWSGI:
    """Makes the wrapped application's writes run at most once per key.

    `store` is a URL or an engine to share; the other options are those of `oncekey.http.gate.Gate`. With `shadow` no
    request is changed or refused: the sinks are told what would have become of it.
    """

    def __init__(
        self,
        app: WSGIApplication,
        store: str | Store | Engine,
        *,
        sinks: tuple[Sink, ...] = (),
        shadow: bool = False,
        **choices: Unpack[Choices],
    ) -> None:
        self.app = app
        self.gate = (ShadowGate if shadow else Gate)(**choices).on_its_own()
        if isinstance(store, Engine):
            self.engine = store
        else:
            tuning = Tuning(store_for=self.gate.policy.store_for, waiting=self.gate.policy.waiting)
            self.engine = Engine(store, tuning, () if shadow else sinks)
        self.gate.keep_time_with(self.engine.now)
        self.duty = Duty(self.engine, owned=not isinstance(store, Engine))
        self.shadow = WsgiShadow(self, store, sinks) if shadow else None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request."""
        if self.shadow is not None:
            return self.shadow(environ, start_response)
        # A second installation on the same path finds the first one's mark and steps aside.
        if environ["REQUEST_METHOD"] in self.gate.methods and OPERATION not in environ:
            request = request_of(environ)
            if self.gate.covers(request.method, request.path):
                if (tracer := self.engine.said.tracer) is None:
                    return self._guard(request, environ, start_response)
                with tracer.during(request.headers):
                    return self._guard(request, environ, start_response)
        return self.app(environ, start_response)

    def check(self) -> None:
        """Look at the store now: UnsafeStore and SchemaMissing say what to change, StoreError that it is away."""
        self.duty.check()

    def shutdown(self, grace_for: float = GRACE_FOR) -> None:
        """Take no new work, wait for what runs, record the rest as unknown, and let go of the store."""
        if self.shadow is not None:
            self.shadow.shutdown()
        self.duty.end(grace_for)

    def _guard(self, request: Request, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        gate = self.gate
        # A key in a header is looked at before the body is read; a key in the body cannot be.
        found = gate.key(request) if gate.dialect.header is not None else ""
        if found is None:
            return self.app(environ, start_response)
        if isinstance(found, str):
            try:
                refusal = read(environ, request, gate)
            except RequestRefused as error:
                refusal = refuse(gate.dialect, error)
            found = refusal or found or gate.key(request)
            if found is None:
                return self.app(with_body(environ, request.body), start_response)
        if isinstance(found, Reply):
            return told(found, start_response)
        return self._enter(gate.prepare(request, found), environ, start_response)

    def _enter(
        self, exchange: Exchange | Reply, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        if isinstance(exchange, Reply):
            if exchange.replays:
                say_recalled(self.engine.said, exchange.replays, exchange.label)
            return told(exchange, start_response)
        policy, claim, started = self.gate.policy, exchange.claim, time.monotonic()
        try:
            self.duty.ready()
            decision = self.engine.enter(claim, exchange, self.gate.terms, policy.wait_for, late=exchange.late)
            taken = exchange.attempt(decision, started) if type(decision) is Execute else exchange.answer(decision)
        except OnceKeyError as error:
            give_back(self.engine.keeper, claim, error)
            log.warning("operation %s was refused: %s", key_ref(claim.id), error)
            return told(exchange.refuse(error), start_response)
        if isinstance(taken, Attempt):
            return Work(self.engine, self.duty, exchange, taken).run(self.app, environ, start_response)
        return told(taken, start_response)
