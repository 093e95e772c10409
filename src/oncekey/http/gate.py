"""What one installation of OnceKey does with a request, without a framework: the adapters carry it out.

A Gate is made once, from what the user chose. `Gate.prepare` turns a whole request into an Exchange, or into the
refusal to send. An Exchange knows the claim to make, the answer to every decision, and the settlement of every end.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypedDict

from oncekey.core.commands import Claim
from oncekey.core.fingerprint import Fingerprinter, Parts
from oncekey.core.flows import Terms
from oncekey.core.keys import endpoint_of, made_at, scope_of
from oncekey.core.policy import TRANSACTIONAL, Policy, checked, ms
from oncekey.core.record import Label, State
from oncekey.engine.events import log
from oncekey.engine.sealing import Sealer
from oncekey.errors import BadKey, BodyTooLarge, ConfigurationError, OnceKeyError
from oncekey.http import dialects
from oncekey.http import scope as scopes
from oncekey.http.answer import refuse
from oncekey.http.capture import completed, shape
from oncekey.http.exchange import Exchange
from oncekey.http.grammar import Dialect
from oncekey.http.keyfield import find_key
from oncekey.http.messages import Reply, Request
from oncekey.http.recall import Recall
from oncekey.http.scope import Scope

Paths = Iterable[str] | Callable[[str], bool] | None

# OASIS Repeatable Requests' name for it, and the plain one.
FIRST_SENT = (b"repeatability-first-sent", b"idempotency-first-sent")
# How far a client's clock may be off before its word is taken against it.
SKEW_FOR = 300.0
# Scopes whose hash is kept at hand; an endpoint and a caller make one.
SCOPES = 4096
# The same for the names of an answer's headers.
SHAPES = 256


class Manners(TypedDict, total=False):
    """How requests are read and answers kept: the choices that hold for all callers and effects alike."""

    dialect: str | Dialect
    required: bool | None
    paths: Paths
    fingerprinter: Fingerprinter | None
    sealer: Sealer | None


class Choices(Manners, total=False):
    """All that a Gate takes, by name, so that a type checker knows the words of whoever passes them on."""

    scope: Scope | None
    policy: Policy | None


class Gate:
    """The choices of one installation, checked once."""

    def __init__(
        self,
        *,
        scope: Scope | None = None,
        dialect: str | Dialect = "ietf",
        policy: Policy | None = None,
        required: bool | None = None,
        paths: Paths = None,
        fingerprinter: Fingerprinter | None = None,
        sealer: Sealer | None = None,
    ) -> None:
        self.scope = scopes.required(scope)
        self.dialect = dialect if isinstance(dialect, Dialect) else dialects.dialect(dialect)
        self.policy = checked(policy) if policy is not None else self.dialect.policy()
        _check_kinds(fingerprinter, sealer)
        self.required = self.dialect.required if required is None else required
        self.paths = _paths(paths)
        self.fingerprinter = fingerprinter or Fingerprinter()
        self.sealer = sealer or Sealer()
        self.methods = self.dialect.methods
        self.lease_for = ms(self.policy.lease_for)
        self.kept = completed(self.policy)
        self.state = State.CLAIMED if self.policy.latch else State.EXECUTING
        self.guarantee = self.policy.level
        self.drop_headers = frozenset(name.lower().encode() for name in self.policy.drop_headers)
        self.terms = Terms(
            keep_for=ms(self.policy.keep_key_for or self.policy.keep_for),
            reconcile_after_for=ms(self.policy.reconcile_after_for),
            attempts=self.policy.attempts,
        )
        recall_for = self.policy.recall_for
        recall_for = min(recall_for, self.policy.keep_for / 2) if recall_for is not None else None
        self.recall = Recall(self.dialect, recall_for) if recall_for is not None else None
        self._scopes = functools.lru_cache(SCOPES)(scope_of)
        self.shape = functools.lru_cache(SHAPES)(functools.partial(shape, also_drop=self.drop_headers))

    def keep_time_with(self, now: Callable[[], float]) -> None:
        """What is given from memory ends by this clock."""
        if self.recall is not None:
            self.recall.now = now

    def covers(self, method: str, path: str) -> bool:
        """Whether a request is ours at all; others pass untouched."""
        return method in self.methods and (self.paths is None or self.paths(path))

    def on_its_own(self) -> Gate:
        """The same, for a layer that claims on a connection of its own; it refuses what it cannot promise there."""
        if self.policy.guarantee == TRANSACTIONAL:
            raise ConfigurationError(WITHOUT_SESSION)
        return self

    def too_large(self, size: int) -> Reply | None:
        """The refusal of a body over the cap."""
        if size <= self.policy.max_body:
            return None
        return refuse(
            self.dialect,
            BodyTooLarge(f"the body is over the limit of {self.policy.max_body} bytes: send a smaller one"),
        )

    def key(self, request: Request) -> str | Reply | None:
        """The request's key; None if it has none and needs none; or the refusal."""
        try:
            return find_key(self.dialect, request, required=self.required)
        except BadKey as bad:
            return refuse(self.dialect, bad)

    def prepare(self, request: Request, key: str) -> Exchange | Reply:
        """Everything that can be known before the store is asked."""
        caller: object = self.scope(request)
        if caller is None or caller == "":
            return refuse(self.dialect, CallerUnknown(CALLER_UNKNOWN))
        if not isinstance(caller, str):
            log.error("scope= must give the caller's name as a text, or None; it gave %s", type(caller).__name__)
            return refuse(self.dialect, ConfigurationError("the scope gave no text"))
        if self.recall is not None and (recalled := self.recall.find(caller, key, request)) is not None:
            return recalled
        return self.exchange(request, key, caller, endpoint_of(request.method, request.path))

    def exchange(self, request: Request, key: str, caller: str, endpoint: str) -> Exchange:
        """The exchange of a caller whose name is known."""
        in_scope = self.dialect.endpoint == "scope"
        hasher, digest = self._scopes(caller, endpoint if in_scope else "")
        parts = Parts(request.method, request.path, request.query, request.header(b"content-type"), request.body)
        claim = Claim(
            hasher.record_id(key),
            os.urandom(16),
            self.fingerprinter.encoded(parts),
            self.lease_for,
            self.state,
            self.guarantee,
            Label(digest, endpoint, key),
        )
        exchange = Exchange(self, key, claim, parts, caller)
        exchange.late = self._is_late(key, request)
        return exchange

    def _is_late(self, key: str, request: Request) -> bool:
        """Whether the request was made longer ago than answers are kept: it may have been run, and forgotten since."""
        made = first_sent(request)
        if made is None:
            made = made_at(key)
        return made is not None and time.time() - made / 1000 > self.policy.keep_for + SKEW_FOR


def first_sent(request: Request) -> int | None:
    """When the client first sent this request, by its own word, in milliseconds; None if it does not say."""
    if FIRST_SENT[0] not in request.values and FIRST_SENT[1] not in request.values:
        return None
    for name, value in request.headers:
        if name in FIRST_SENT:
            try:
                sent = parsedate_to_datetime(value.decode("latin-1"))
                # A date that does not know its zone (-0000) is in UTC, not in ours.
                return int((sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp() * 1000)
            except (ValueError, OverflowError):
                return None
    return None


WITHOUT_SESSION = (
    "guarantee='transactional' needs the session that your handler writes with, and this layer does not see it. Write "
    "in FastAPI: APIRouter(route_class=once.fastapi(session=get_session)); in Flask: @once.flask(session=db.session); "
    "in Django: @once.django(); elsewhere use once.transaction(...) in the handler. Or leave the guarantee out here"
)


class CallerUnknown(OnceKeyError):
    """The scope found no caller in the request: a key without an owner is refused."""

    status = 401


CALLER_UNKNOWN = "the request does not say whose idempotency key this is; send your credentials with it"


def _check_kinds(fingerprinter: object, sealer: object) -> None:
    """What is of another kind would fail at the first payment."""
    if not (fingerprinter is None or hasattr(fingerprinter, "encoded")):
        raise ConfigurationError(f"fingerprinter={fingerprinter!r} is none: write fingerprinter=Fingerprinter(...)")
    if not (sealer is None or (hasattr(sealer, "seal") and hasattr(sealer, "open"))):
        raise ConfigurationError(f"sealer={sealer!r} is none: write sealer=Sealer(...)")


def _paths(paths: Paths) -> Callable[[str], bool] | None:
    if paths is None or callable(paths):
        return paths
    if isinstance(paths, str):
        raise ConfigurationError(f"paths={paths!r} is a text: write paths=[{paths!r}]")
    prefixes = tuple(paths) if isinstance(paths, Iterable) else ()
    if not prefixes or not all(isinstance(prefix, str) and prefix.startswith("/") for prefix in prefixes):
        raise ConfigurationError(f"paths={paths!r} must be paths that start with a slash: write paths=['/payments']")
    return lambda path: path.startswith(prefixes)
