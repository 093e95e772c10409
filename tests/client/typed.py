"""What a type checker sees of the client: mypy reads this file, and an expectation that does not hold is an error.

Each `type: ignore` here is a mistake that the checker must find: one that it does not find is reported as unused.
"""

from __future__ import annotations

from typing import assert_type

import aiohttp
import httpx
import requests
import urllib3

from oncekey.client import (
    Budget,
    Carriage,
    GaveUp,
    Journal,
    Mismatch,
    NothingSent,
    OutcomeUnknown,
    Rejected,
    Retries,
    carriage,
    check,
    derived,
    intent,
    tool_key,
)
from oncekey.client.aiohttp import RetryMiddleware
from oncekey.client.httpx import AsyncRetryTransport, RetryTransport
from oncekey.client.journal import IntentKey, Request
from oncekey.client.requests import RetryAdapter
from oncekey.client.resuming import Report, resume, sender
from oncekey.client.urllib3 import RetryPoolManager


def transports(journal: Journal, session: requests.Session) -> None:
    """Each is what its library takes, and wraps any other."""
    inner: httpx.BaseTransport = httpx.MockTransport(lambda request: httpx.Response(201))
    httpx.Client(transport=RetryTransport(inner, retries=Retries(attempts=3), carriage=Carriage(), journal=journal))
    httpx.AsyncClient(transport=AsyncRetryTransport(httpx.AsyncHTTPTransport()))
    session.mount("https://", RetryAdapter(requests.adapters.HTTPAdapter()))
    http: urllib3.PoolManager = RetryPoolManager(retries_by=Retries(budget=Budget(10)), num_pools=3)
    assert_type(http.request("POST", "https://x"), urllib3.BaseHTTPResponse)
    httpx.Client(transport=AsyncRetryTransport())  # type: ignore[arg-type]
    RetryTransport(retries=3)  # type: ignore[arg-type]
    Retries(try_for="1 minute")  # type: ignore[arg-type]


async def middlewares() -> None:
    """Functions are what aiohttp takes; ours is one."""
    async with aiohttp.ClientSession(middlewares=[RetryMiddleware(carriage=carriage("ietf", quoted=True))]):
        pass


def intents(journal: Journal, order: int) -> str:
    """A key is text."""
    with intent("checkout", order) as key, journal.intent("receipt", "a", 1) as other:
        assert_type(key, IntentKey)
        assert_type(other.first, bool)
        key.settle()
    assert_type(journal.put("order", 1, request=Request("POST", "https://x")), str)
    assert_type(derived("shop", "order", 1), str)
    assert_type(tool_key("run", "pay", {"a": [1]}), str)
    journal.begin("pay", 1.5)  # type: ignore[arg-type]
    journal.put("order", 1, Request("POST", "https://x"))  # type: ignore[call-arg, arg-type]
    return key


def errors(response: httpx.Response) -> object:
    """`check` keeps the type, and each error says what is known."""
    try:
        assert_type(check(response), httpx.Response)
    except Mismatch as error:
        assert_type(error.status_code, int)
    except Rejected as error:
        return error.response
    except NothingSent as error:
        assert_type(error.attempts, int)
    except OutcomeUnknown as error:
        assert_type((error.key, error.operation), tuple[str, str])
    except GaveUp as error:
        assert_type(error.reason, str)
    return None


def resumed(journal: Journal) -> list[str]:
    """The report names keys."""
    with sender(journal, headers={"Authorization": "Bearer t"}) as client:
        report = resume(journal, client, queue="orders", told=lambda entry, word: (entry.key, word))
    assert_type(report, Report)
    return report.refused
