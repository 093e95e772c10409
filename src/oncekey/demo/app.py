"""The demo as an ASGI application: the table of routes, and the way of a request through it.

A request to an API is looked up, read whole, and checked, and only then meets OnceKey; so what is refused before
leaves no record. Each API has its own OnceKeyMiddleware; all share one engine, and with it one store.
"""

from __future__ import annotations

import time
from dataclasses import replace

from oncekey.adapters.asgi import OnceKeyMiddleware
from oncekey.console import Console
from oncekey.core.policy import Policy
from oncekey.demo import feed
from oncekey.demo.apis import APIS, Api, Call, Route
from oncekey.demo.apis.api import LEASE_FOR, Refused, Trouble
from oncekey.demo.feed import HAPPENED, Feed
from oncekey.demo.ledger import Ledger
from oncekey.demo.marks import marks_of
from oncekey.demo.provider import Provider, ProviderFailed
from oncekey.demo.resolving import resolvers
from oncekey.demo.settings import Settings
from oncekey.demo.views import View, Views
from oncekey.demo.web import Message, Receive, Scope, Send, Table, again, problem, respond, whole_body
from oncekey.demo.webhooks import RECEIVED_AT, SENT_BY, webhooks
from oncekey.engine.aio import AsyncEngine
from oncekey.engine.events import Event
from oncekey.engine.sealing import Sealer
from oncekey.engine.tuning import Tuning
from oncekey.errors import OutcomeUnknown
from oncekey.http.messages import Reply, Request
from oncekey.http.scope import by_header
from oncekey.reconcile import AsyncReconciler, Pace, Rules
from oncekey.telemetry.counters import Counters
from oncekey.telemetry.metrics import Metric

MOST = Policy().max_body
# Where the console is mounted.
CONSOLE = "/console"
# Where a call travels to the guarded application, and where OnceKey puts its operation beside it.
CALL, OPERATION = "oncekey.demo", "oncekey"
RECEIVED = Metric("oncekey.demo.requests.count", "requests that reached one of the APIs")


class Demo:
    """One worker's application."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters(settings.shared, [RECEIVED])
        self.feed = Feed(settings.shared)
        self.ledger = Ledger(settings.ledger)
        self.provider = Provider(self.ledger)
        self.engine = AsyncEngine(settings.store, Tuning(), (self.counters, feed.note))
        self.guards = {api.name: self._guard(api) for api in APIS}
        running = next(iter(self.guards.values())).running
        for guard in self.guards.values():
            # They share one engine, so one can wait for the work of all; who started us has checked the store.
            guard.running, guard.checked = running, True
        # Lapsed leases are swept by the housekeeper, which counts them.
        rules = Rules(resolvers(self.provider), Sealer(), Pace(first_for=LEASE_FOR, most_for=60, sweep_for=None))
        told = replace(rules, name="webhook")
        self.webhooks = webhooks(self.provider, told, lambda: self.engine.store, settings.token, (self.counters,))
        self.reconciler = AsyncReconciler(self.engine.store, rules, (self.counters,))
        self.console = Console(self.engine.store, token=settings.token, counts=self.counters, sinks=(self.counters,))
        self.table: Table[Route | View] = Table()
        for path, view in self._views().by_path():
            self.table.add("GET", path, view)
        self.table.add("POST", RECEIVED_AT, self.webhooks.receive)
        self.table.add("POST", SENT_BY, self.webhooks.send)
        for route in (route for api in APIS for route in api.routes):
            self.table.add(route.method, route.path, route)

    def _views(self) -> Views:
        return Views(self.settings, self.provider, self.counters, self.feed, lambda: self.engine.store)

    def _guard(self, api: Api) -> OnceKeyMiddleware:
        return OnceKeyMiddleware(
            work, self.engine, scope=by_header(api.caller_header), dialect=api.dialect, policy=api.policy
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["path"] == CONSOLE or scope["path"].startswith(f"{CONSOLE}/"):
            await self.console({**scope, "root_path": scope.get("root_path", "") + CONSOLE}, receive, send)
            return
        request = Request(scope["method"], scope["path"], scope["query_string"], scope["headers"], b"")
        target, place, allowed = self.table.find(request.method, request.path)
        if target is None:
            await respond(send, _nowhere(request, allowed))
        elif isinstance(target, Route):
            await self._api(target, place, request, (scope, receive, send))
        else:
            await self._view(target, request, receive, send)

    async def _view(self, view: View, request: Request, receive: Receive, send: Send) -> None:
        if request.method == "POST":
            body = await whole_body(receive, MOST)
            if body is None:
                return
            if isinstance(body, int):
                await respond(send, problem(413, "Content Too Large", f"The body is over {MOST} bytes."))
                return
            request.body = body
        try:
            reply = await view(request)
        except OutcomeUnknown as error:
            reply = problem(503, "Service Unavailable", f"{str(error).capitalize()}.")
        await respond(send, reply)

    async def _api(self, route: Route, place: str, request: Request, asgi: tuple[Scope, Receive, Send]) -> None:
        scope, receive, send = asgi
        started, watched = time.monotonic(), Watched(send)
        HAPPENED.set(watched.happened)
        self.counters.add(RECEIVED, int(route.guarded))
        body = await whole_body(receive, MOST)
        if body is None:
            return
        try:
            call = self._call(route, place, request, body)
        except Refused as refused:
            await respond(watched.send, route.failure(refused.trouble))
        else:
            inner: Scope = {**scope, CALL: call}
            guarded = self.guards[route.api.name] if route.guarded else work
            await guarded(inner, again(request.body, receive), watched.send)
        if route.guarded:
            self._note(route, watched, started)

    def _call(self, route: Route, place: str, request: Request, body: bytes | int) -> Call:
        if isinstance(body, int):
            raise Refused(Trouble(413, f"The body is over {MOST} bytes."))
        header = route.api.caller_header
        callers = request.lines(header.lower().encode())
        if len(callers) != 1 or not callers[0].strip():
            raise Refused(Trouble(401, f"Say who you are: send one {header} header; any value will do."))
        request.body = body
        fields = route.read(body)
        route.check(fields)
        return Call(route, request, callers[0].decode("latin-1"), place, fields, marks_of(body), self.provider)

    def _note(self, route: Route, watched: Watched, started: float) -> None:
        word, ref, held = feed.verdict(watched.happened, watched.status)
        line = {"at": time.time_ns() // 1_000_000, "api": route.api.name, "what": f"{route.method} {route.path}"}
        line |= {"status": watched.status, "verdict": word, "ref": ref, "held": held}
        self.feed.add(line | {"took": round((time.monotonic() - started) * 1000)})


class Watched:
    """A `send` that remembers the status, and what OnceKey said about the request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.happened: list[Event] = []

    async def send(self, message: Message) -> None:
        """Pass it on."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


async def work(scope: Scope, receive: Receive, send: Send) -> None:
    """The application that is guarded: it serves one call, and knows nothing of keys."""
    call: Call = scope[CALL]._replace(operation=scope.get(OPERATION))
    try:
        reply = await call.route.run(call)
    except Refused as refused:
        reply = call.route.failure(refused.trouble)
    except OutcomeUnknown as error:
        # Under a key it is OnceKey that answers: nobody may run this again before it is found out.
        if OPERATION in scope:
            raise
        reply = call.route.failure(Trouble(503, f"{str(error).capitalize()}."))
    except ProviderFailed as failed:
        reply = call.route.failure(Trouble(failed.status, f"{str(failed).capitalize()}."))
    await respond(send, reply)


def _nowhere(request: Request, allowed: tuple[str, ...]) -> Reply:
    if not allowed:
        return problem(404, "Not Found", "There is nothing here. The start page / says what there is.")
    methods = ", ".join(allowed)
    detail = f"This path does not serve {request.method}, only {methods}."
    return problem(405, "Method Not Allowed", detail, [(b"allow", methods.encode())])
