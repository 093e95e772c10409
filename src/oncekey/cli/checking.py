"""`oncekey doctor`: the store, and with --app an application's routes and choices."""

from __future__ import annotations

import argparse
from contextlib import closing

from oncekey import operations
from oncekey.cli.exits import Exit
from oncekey.cli.loading import named_object
from oncekey.cli.outputs import Output
from oncekey.errors import OnceKeyError
from oncekey.http.gate import Gate
from oncekey.once import OnceKey
from oncekey.operations import Finding, Health, Layer, Surface, assess, masked, scrubbed, surface
from oncekey.stores.contract import Store

Given = argparse.Namespace


def doctor(store: Store, given: Given, out: Output) -> Exit:
    """Check a store."""
    health = operations.doctor(store)
    out.health(health)
    return _worst([health], strict=given.strict)


def doctor_of_app(given: Given, out: Output) -> Exit:
    """Check an application: its routes, its choices, and the stores that they name."""
    found = _surface(named_object(given.app))
    addresses = dict.fromkeys(filter(None, [*(layer.store for layer in found.layers), given.store]))
    stores = [] if given.no_store else [_checked(url, given.store_for) for url in addresses]
    health = assess(given.app, found, stores, given.allow)
    out.app_health(health)
    worst = _worst(stores, strict=given.strict)
    if worst not in (Exit.OK, Exit.FOUND):
        return worst
    return Exit.FOUND if health.exposed or (given.strict and health.warned) else worst


def _surface(app: object) -> Surface:
    if isinstance(app, OnceKey):
        return Surface(layers=[Layer(Gate(scope=app.scope, policy=app.policy, **app.choices), app.store)])
    return surface(app)


def _checked(url: str, store_for: float) -> Health:
    try:
        with closing(operations.opened(url, store_for=store_for)) as store:
            return operations.doctor(store)
    except OnceKeyError as trouble:
        refused = [Finding("refusal", scrubbed(str(trouble), url))]
        return Health(masked(url), reachable=True, findings=refused, versions=operations.versions())


def _worst(stores: list[Health], *, strict: bool) -> Exit:
    if any(not store.reachable for store in stores):
        return Exit.UNREACHABLE
    if any(store.refused for store in stores):
        return Exit.UNSAFE
    return Exit.FOUND if strict and any(store.warned for store in stores) else Exit.OK
