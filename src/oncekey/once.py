"""One installation of OnceKey in a program: where records are, whose keys they are, and how retries are treated.

    once = OnceKey("postgresql://...", scope=by_header("Authorization"), policy=Policy(lease_for=30))

What it can do hangs on it; each part is loaded when it is first used, and nothing is contacted before that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from oncekey.core.policy import TRANSACTIONAL, Policy, checked
from oncekey.engine.sealing import Sealer
from oncekey.engine.tuning import Tuning
from oncekey.errors import ConfigurationError, MissingExtra
from oncekey.http import scope as scopes

if TYPE_CHECKING:
    from oncekey.adapters.django import DjangoGuard
    from oncekey.adapters.endpoint import AsgiEndpoint, WsgiEndpoint
    from oncekey.adapters.fastapi import RouteClass
    from oncekey.adapters.flask import View
    from oncekey.console import Console
    from oncekey.console.access import Operator
    from oncekey.console.rates import Source
    from oncekey.effects.transaction import House, Transaction
    from oncekey.engine.aio import AsyncEngine
    from oncekey.engine.events import Sink
    from oncekey.engine.threaded import Engine
    from oncekey.http.gate import Gate, Manners
    from oncekey.http.scope import Scope
    from oncekey.reconcile import About, AsyncReconciler, Known, Pace, Reconciler, Rules
    from oncekey.reconcile.resolvers import R, Resolvers
    from oncekey.reconcile.signatures import Signature
    from oncekey.reconcile.webhooks import Reader
    from oncekey.telemetry.counters import Counters


class OnceKey:
    """One installation: `OnceKey("postgresql://...", scope=by_header("Authorization"))`.

    `store` is a URL, and `scope` says whose key it is. `choices` are those of `oncekey.http.gate.Gate`: dialect, paths,
    sealer and so on. Nothing is contacted before it is used.
    """

    def __init__(
        self,
        store: str,
        *,
        scope: Scope | None = None,
        policy: Policy | None = None,
        sinks: tuple[Sink, ...] = (),
        **choices: Unpack[Manners],
    ) -> None:
        if not isinstance(store, str):
            raise ConfigurationError(f"store={store!r} is no address: write a URL, such as 'sqlite:///oncekey.db'")
        self.store = store
        self.scope = scopes.required(scope)
        self.policy = checked(policy) if policy is not None else Policy()
        self.sinks = sinks
        self.choices = choices
        self.tuning = Tuning(store_for=self.policy.store_for, waiting=self.policy.waiting)
        self.resolvers: Resolvers | None = None
        self._engine: Engine | None = None
        self._async_engine: AsyncEngine | None = None
        self._making = threading.Lock()

    @property
    def engine(self) -> Engine:
        """The engine for threads, made at its first use."""
        with self._making:
            if self._engine is None:
                from oncekey.engine.threaded import Engine  # noqa: PLC0415 - a program of one colour loads one engine

                self._engine = Engine(self.store, self.tuning, self.sinks)
            return self._engine

    @property
    def async_engine(self) -> AsyncEngine:
        """The engine for asyncio, made at its first use."""
        with self._making:
            if self._async_engine is None:
                from oncekey.engine.aio import AsyncEngine  # noqa: PLC0415 - as above

                self._async_engine = AsyncEngine(self.store, self.tuning, self.sinks)
            return self._async_engine

    def transaction(
        self,
        connection: Any,
        *,
        key: str | Callable[..., str],
        operation: str,
        caller: str | Callable[..., str] | None = None,
        body: Any = None,
        database_only: bool = False,
        tries: int = 5,
    ) -> Transaction:
        """One operation in one transaction of yours: the claim of its key, your writes and the outcome, or nothing.

        `connection` is one that you have, or what opens one: a pool, an engine, a sessionmaker, transaction.atomic.
        Use it by `with` or `async with`, or as a decorator, where key, caller and body may be functions of the
        arguments. `operation` is "POST /orders" or any name; `caller` is whose key it is; `body` is what was asked.
        `database_only=True` says that a decorated function does nothing outside of the database: then it is run again,
        up to `tries` times, when the database asks for that (serialization failures, deadlocks).
        """
        if isinstance(tries, bool) or not isinstance(tries, int) or tries < 1:
            raise ConfigurationError(f"tries={tries!r} makes no sense: write a whole number of 1 or more")
        from oncekey.effects.transaction import Again, Request, Transaction  # noqa: PLC0415 - loaded when it is used

        return Transaction(self._house, connection, Request(key, operation, caller, body), Again(database_only, tries))

    @functools.cached_property
    def _house(self) -> House:
        from oncekey.effects.transaction import house  # noqa: PLC0415 - as above
        from oncekey.engine.events import Events  # noqa: PLC0415 - as above
        from oncekey.http.gate import Gate  # noqa: PLC0415 - as above

        return house(self.store, Gate(scope=self.scope, policy=self.policy, **self.choices), Events(self.sinks))

    def fastapi(self, session: Any) -> RouteClass:
        """A route class for FastAPI: `APIRouter(route_class=once.fastapi(session=get_session))`.

        Each write on its routes is one transaction: claim, work and answer are committed together on the session that
        the dependency `session` gives (a function, or Depends(...)), and the answer is sent after that.
        """
        house = self._transactional()
        try:
            from oncekey.adapters.fastapi import route_class  # noqa: PLC0415 - as above
        except ModuleNotFoundError as missing:
            raise MissingExtra("once.fastapi()", "fastapi") from missing
        return route_class(house, session)

    def flask(self, session: Any) -> Callable[[View], View]:
        """A decorator for views of Flask: the same on `session`, a scoped session, or what gives the request's own."""
        house = self._transactional()
        try:
            from oncekey.adapters.flask import guarding  # noqa: PLC0415 - as above
        except ModuleNotFoundError as missing:
            raise MissingExtra("once.flask()", "flask") from missing
        return guarding(house, session)

    def django(self, using: str = "default") -> DjangoGuard:
        """A decorator for views of Django: the same on the database `using`. Its `middleware` guards all views."""
        house = self._transactional()
        try:
            from oncekey.adapters.django import DjangoGuard  # noqa: PLC0415 - as above
        except ModuleNotFoundError as missing:
            raise MissingExtra("once.django()", "django") from missing
        return DjangoGuard(house, using)

    def _transactional(self) -> House:
        if self.policy.guarantee != TRANSACTIONAL:
            raise ConfigurationError(
                f"a session is for guarantee='transactional', and the policy says {self.policy.guarantee!r}: write "
                "OnceKey(..., policy=Policy(guarantee='transactional')), or guard the whole application by "
                "OnceKeyMiddleware or OnceKeyWSGI"
            )
        return self._house

    def resolver(self, endpoint: str) -> Callable[[R], R]:
        """Register who finds out about an endpoint's unknown outcomes: `@once.resolver("POST /payments")`.

        `"*"` answers for all others. The function gets an Inquiry and answers with a Finding (oncekey.reconcile).
        """
        return self._resolvers()(endpoint)

    def _resolvers(self) -> Resolvers:
        from oncekey.reconcile.resolvers import Resolvers  # noqa: PLC0415 - only who reconciles loads it

        self.resolvers = self.resolvers if self.resolvers is not None else Resolvers()
        return self.resolvers

    def reconciler(self, pace: Pace | None = None) -> Reconciler:
        """The worker that asks the resolvers, for threads: `run_once()`, `run()`, or `with once.reconciler():`."""
        from oncekey.reconcile import Reconciler  # noqa: PLC0415 - as above

        return Reconciler(self.engine.store, self._rules(pace), self.sinks)

    def async_reconciler(self, pace: Pace | None = None) -> AsyncReconciler:
        """The same for asyncio: `async with once.async_reconciler():`."""
        from oncekey.reconcile import AsyncReconciler  # noqa: PLC0415 - as above

        return AsyncReconciler(self.async_engine.store, self._rules(pace), self.sinks)

    def status(self, prefix: str = "/idempotency", endpoints: Sequence[str] = ()) -> AsgiEndpoint:
        """An ASGI application: `GET {prefix}/operations/{key}` tells a caller what became of its operation.

        `endpoints`, such as ["POST /payments"], are looked through for requests that do not name theirs.
        """
        from oncekey.adapters.endpoint import AsgiEndpoint  # noqa: PLC0415 - as above
        from oncekey.http.status import StatusPage  # noqa: PLC0415 - as above

        return AsgiEndpoint(StatusPage(self._gate(), prefix, endpoints), lambda: self.async_engine.store)

    def status_wsgi(self, prefix: str = "/idempotency", endpoints: Sequence[str] = ()) -> WsgiEndpoint:
        """The same as a WSGI application."""
        from oncekey.adapters.endpoint import WsgiEndpoint  # noqa: PLC0415 - as above
        from oncekey.http.status import StatusPage  # noqa: PLC0415 - as above

        return WsgiEndpoint(StatusPage(self._gate(), prefix, endpoints), lambda: self.engine.store)

    def metrics(self, counters: Counters) -> AsgiEndpoint:
        """An ASGI application that Prometheus reads: what was counted, and the age of the oldest unknown outcome."""
        from oncekey.adapters.endpoint import AsgiEndpoint  # noqa: PLC0415 - as above
        from oncekey.telemetry.metrics_page import MetricsPage  # noqa: PLC0415 - as above

        return AsgiEndpoint(MetricsPage(counters), lambda: self.async_engine.store)

    def metrics_wsgi(self, counters: Counters) -> WsgiEndpoint:
        """The same as a WSGI application."""
        from oncekey.adapters.endpoint import WsgiEndpoint  # noqa: PLC0415 - as above
        from oncekey.telemetry.metrics_page import MetricsPage  # noqa: PLC0415 - as above

        return WsgiEndpoint(MetricsPage(counters), lambda: self.engine.store)

    def console(self, *, token: str | None = None, operator: Operator | None = None, counts: Source = None) -> Console:
        """An ASGI application: a web page to look at operations and settle them (oncekey.console).

        Say who may enter: `token` for a sign-in of its own, or `operator`, a function of a request's scope that
        returns the name of whoever the application has signed in, or None to refuse.
        """
        from oncekey.console import Console  # noqa: PLC0415 - as above

        sealer = self.choices.get("sealer")
        return Console(
            lambda: self.async_engine.store,
            token=token,
            operator=operator,
            sealer=sealer,
            counts=counts,
            sinks=self.sinks,
        )

    def webhook(self, signature: Signature, reader: Reader) -> AsgiEndpoint:
        """An ASGI application for one sender's webhooks: `reader` says what a message is about (oncekey.reconcile)."""
        from oncekey.adapters.endpoint import AsgiEndpoint  # noqa: PLC0415 - as above
        from oncekey.reconcile import Webhook  # noqa: PLC0415 - as above

        return AsgiEndpoint(Webhook(self._told(), signature, reader, self.sinks), lambda: self.async_engine.store)

    def webhook_wsgi(self, signature: Signature, reader: Reader) -> WsgiEndpoint:
        """The same as a WSGI application."""
        from oncekey.adapters.endpoint import WsgiEndpoint  # noqa: PLC0415 - as above
        from oncekey.reconcile import Webhook  # noqa: PLC0415 - as above

        return WsgiEndpoint(Webhook(self._told(), signature, reader, self.sinks), lambda: self.engine.store)

    def settle(self, about: About) -> Known:
        """Settle an unknown outcome by what a message tells that you received and checked by yourself."""
        from oncekey.reconcile.webhooks import settle  # noqa: PLC0415 - as above

        return settle(self.engine.store, self._told(), about, self.sinks)

    async def asettle(self, about: About) -> Known:
        """The same under asyncio."""
        from oncekey.reconcile.webhooks import settle_async  # noqa: PLC0415 - as above

        return await settle_async(self.async_engine.store, self._told(), about, self.sinks)

    def _told(self) -> Rules:
        return replace(self._rules(None), name="webhook")

    def _gate(self) -> Gate:
        from oncekey.http.gate import Gate  # noqa: PLC0415 - as above

        return Gate(scope=self.scope, policy=self.policy, **self.choices)

    def _rules(self, pace: Pace | None) -> Rules:
        from oncekey.reconcile import Pace, Rules  # noqa: PLC0415 - as above

        sealer = self.choices.get("sealer") or Sealer()
        return Rules(self._resolvers(), sealer, pace or Pace(), self.policy)

    def close(self) -> None:
        """Let go of the store, under threads."""
        if self._engine is not None:
            self._engine.close()

    async def aclose(self) -> None:
        """Let go of the store, under asyncio."""
        if self._async_engine is not None:
            await self._async_engine.close()
