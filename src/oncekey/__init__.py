"""One key, one effect: retried writes that run at most once.

The names below are loaded when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from oncekey.adapters.asgi import OnceKeyMiddleware
    from oncekey.adapters.wsgi import OnceKeyWSGI
    from oncekey.core.policy import Policy
    from oncekey.effects.inbox import AsyncInbox, Inbox
    from oncekey.effects.outbox import Outbox, Relay
    from oncekey.engine.aio import AsyncEngine
    from oncekey.engine.threaded import Engine
    from oncekey.errors import (
        BadKey,
        BadMessage,
        BodyIncomplete,
        BodyTooLarge,
        BrokerUnavailable,
        ConfigurationError,
        Declined,
        JournalFull,
        LeaseLost,
        MessageRefused,
        MissingExtra,
        NotExecuted,
        NotGranted,
        OnceKeyError,
        OutcomeUnknown,
        RecordForged,
        RecordUnreadable,
        RedeliverLater,
        RequestRefused,
        SchemaMissing,
        StepChanged,
        StoreError,
        StoreUnavailable,
        TransactionEnded,
        UnsafeStore,
    )
    from oncekey.http.scope import SHARED, by, by_header
    from oncekey.once import OnceKey

_ERRORS = "oncekey.errors"
_INBOX = "oncekey.effects.inbox"
_OUTBOX = "oncekey.effects.outbox"
_HOMES = {
    "AsyncEngine": "oncekey.engine.aio",
    "AsyncInbox": _INBOX,
    "BadKey": _ERRORS,
    "BadMessage": _ERRORS,
    "BodyIncomplete": _ERRORS,
    "BodyTooLarge": _ERRORS,
    "ConfigurationError": _ERRORS,
    "Declined": _ERRORS,
    "BrokerUnavailable": _ERRORS,
    "Engine": "oncekey.engine.threaded",
    "Inbox": _INBOX,
    "JournalFull": _ERRORS,
    "LeaseLost": _ERRORS,
    "MessageRefused": _ERRORS,
    "MissingExtra": _ERRORS,
    "NotExecuted": _ERRORS,
    "NotGranted": _ERRORS,
    "OnceKey": "oncekey.once",
    "Outbox": _OUTBOX,
    "Relay": _OUTBOX,
    "OnceKeyError": _ERRORS,
    "OnceKeyMiddleware": "oncekey.adapters.asgi",
    "OnceKeyWSGI": "oncekey.adapters.wsgi",
    "OutcomeUnknown": _ERRORS,
    "Policy": "oncekey.core.policy",
    "RecordForged": _ERRORS,
    "RecordUnreadable": _ERRORS,
    "RedeliverLater": _ERRORS,
    "RequestRefused": _ERRORS,
    "SHARED": "oncekey.http.scope",
    "SchemaMissing": _ERRORS,
    "StepChanged": _ERRORS,
    "StoreError": _ERRORS,
    "StoreUnavailable": _ERRORS,
    "TransactionEnded": _ERRORS,
    "UnsafeStore": _ERRORS,
    "by": "oncekey.http.scope",
    "by_header": "oncekey.http.scope",
}

__all__ = [
    "SHARED",
    "AsyncEngine",
    "AsyncInbox",
    "BadKey",
    "BadMessage",
    "BodyIncomplete",
    "BodyTooLarge",
    "BrokerUnavailable",
    "ConfigurationError",
    "Declined",
    "Engine",
    "Inbox",
    "JournalFull",
    "LeaseLost",
    "MessageRefused",
    "MissingExtra",
    "NotExecuted",
    "NotGranted",
    "OnceKey",
    "OnceKeyError",
    "OnceKeyMiddleware",
    "OnceKeyWSGI",
    "Outbox",
    "OutcomeUnknown",
    "Policy",
    "RecordForged",
    "RecordUnreadable",
    "RedeliverLater",
    "Relay",
    "RequestRefused",
    "SchemaMissing",
    "StepChanged",
    "StoreError",
    "StoreUnavailable",
    "TransactionEnded",
    "UnsafeStore",
    "by",
    "by_header",
]


# Hidden from type checkers: to them, a module with it has every name that anybody mistypes.
if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> _typing.Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'oncekey' has no attribute {name!r}")
        value = getattr(_importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
