"""To check an application before it goes out: which routes are not guarded, and which choices are risky.

Each finding has a name, by which a deployment script may accept it, with its reason beside it there.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from oncekey.core.policy import AT_MOST_ONCE, Policy
from oncekey.http.gate import Gate
from oncekey.http.scope import SHARED
from oncekey.operations.health import Health
from oncekey.operations.routes import Layer, Route, Surface

DAY = 86_400.0
# A lease that is longer than the deadline by less than this share is used up by one slow answer of the store.
SPARE = 1.25


class Risk(NamedTuple):
    """What should be looked at. Exposed: a request may have its effect twice; a warning: it depends."""

    name: str
    level: Literal["exposed", "warning", "ok"]
    what: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class AppHealth:
    """What a check-up of an application saw; `accepted` are the names of what was found and allowed."""

    app: str
    routes: list[Route]
    risks: list[Risk]
    stores: list[Health]
    accepted: list[str] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)

    @property
    def exposed(self) -> bool:
        """Whether there is a route that should be guarded and is not."""
        return any(risk.level == "exposed" for risk in self.risks)

    @property
    def warned(self) -> bool:
        """Whether something should be changed."""
        return any(risk.level == "warning" for risk in self.risks) or any(store.warned for store in self.stores)


def assess(app: str, found: Surface, stores: list[Health], allowed: Collection[str] = ()) -> AppHealth:
    """Judge what an application shows. What is `allowed`, by name, is not held against it."""
    risks = list(_risks(found))
    names = {risk.name for risk in risks}
    kept = [risk for risk in risks if risk.name not in allowed]
    unused = [
        Risk(name, "warning", f"--allow {name!r} allows nothing that was found", "leave it out")
        for name in allowed
        if name not in names
    ]
    return AppHealth(app, found.routes, kept + unused, stores, sorted(names & set(allowed)), found.opaque)


def _risks(found: Surface) -> Iterator[Risk]:
    for route in found.routes:
        yield from _route(route)
    for what in found.opaque:
        yield Risk(
            "opaque", "warning", f"nobody can see the routes of {what}", "check by hand that its writes are guarded"
        )
    for number, layer in enumerate(found.layers):
        which = f"layer {number + 1}: " if len(found.layers) > 1 else ""
        for risk in (*_policy(layer), *_store(layer)):
            yield risk._replace(what=which + risk.what)


def _route(route: Route) -> Iterator[Risk]:
    if route.guarded:
        return
    if route.repeatable:
        yield Risk(
            str(route),
            "ok",
            f"{route} ({route.name}) is not guarded: HTTP lets it be repeated, so its handler must bear that",
        )
        return
    why = "no OnceKey stands before it"
    if route.layers:
        gate = route.layers[-1].gate
        takes = "/".join(sorted(gate.methods))
        by_method = route.method not in gate.methods
        why = f"the layer takes {takes} only" if by_method else "the layer's paths= leave it out"
    yield Risk(
        str(route),
        "exposed",
        f"{route} ({route.name}) is not guarded: {why}",
        f"put OnceKey before it, or accept it by --allow {str(route)!r} where a repetition does no harm",
    )


def _policy(layer: Layer) -> Iterator[Risk]:
    gate = layer.gate
    if not (layer.within and gate.policy.guarantee == "transactional"):
        yield from _guarantee(gate.policy)
    yield from _times(gate)
    if gate.scope is SHARED:
        yield Risk(
            "scope",
            "warning",
            "scope=SHARED: whoever knows or guesses another caller's key is given that caller's answer",
            "write scope=by_header('Authorization'); --allow scope where there is one client, or keys are secrets",
        )
    if not gate.required:
        yield Risk(
            "optional",
            "warning",
            "a key is optional: requests that come without one are not guarded",
            "write required=True if all clients can send keys",
        )


def _guarantee(policy: Policy) -> Iterator[Risk]:
    if policy.guarantee != AT_MOST_ONCE and policy.take_over is not False:
        must = (
            "every effect must commit with the record"
            if policy.guarantee == "transactional"
            else "every effect must carry a key that its receiver deduplicates"
        )
        yield Risk(
            "guarantee",
            "warning",
            f"guarantee={policy.guarantee!r} runs a lapsed attempt again: {must}",
            "write guarantee='at_most_once' unless that holds for every route; --allow guarantee says that it does",
        )


def _times(gate: Gate) -> Iterator[Risk]:
    policy = gate.policy
    needed = (policy.handler_for or 0) + policy.store_for
    if policy.handler_for is not None and policy.lease_for < needed * SPARE:
        yield Risk(
            "lease",
            "warning",
            f"lease_for={policy.lease_for:g} is close to the deadline: handler and store may take {needed:g} s",
            f"write lease_for={needed * SPARE:g} or more",
        )
    if policy.keep_for < min(DAY, gate.dialect.keep_for or DAY):
        yield Risk(
            "retention",
            "warning",
            f"keep_for={policy.keep_for:g}: a retry after {policy.keep_for / 3600:.1f} h is run as new",
            "write keep_for=86400 or more, longer than any client goes on retrying",
        )


def _store(layer: Layer) -> Iterator[Risk]:
    workers = os.environ.get("WEB_CONCURRENCY", "1")
    if layer.store.startswith("memory:") and "workers=separate" not in layer.store and workers not in {"", "1"}:
        yield Risk(
            "workers",
            "exposed",
            f"memory:// with {workers} workers (WEB_CONCURRENCY): a retry that reaches another worker runs again",
            "use sqlite:///oncekey.db or a server, or one worker",
        )
