"""Retries for urllib3, in one line.

    http = RetryPoolManager()

A PoolManager whose POST and PATCH requests get a key, one for all attempts; a key that you set yourself is kept.
"""

from __future__ import annotations

import io
from contextvars import ContextVar
from functools import partial
from typing import Any
from urllib.parse import urljoin

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationParseError,
    LocationValueError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
)
from urllib3.util import parse_url
from urllib3.util.retry import Retry

from oncekey.client.carriage import Carriage
from oncekey.client.exchange import (
    KEEP_METHOD,
    Guard,
    Lost,
    Reply,
    Terms,
    hopeless,
    lower,
    run,
    streams,
    unframed,
    whole,
    within,
)
from oncekey.client.journal import Journal, Request
from oncekey.client.judging import Answer
from oncekey.client.machine import Retries, Sent

__all__ = ["RetryPoolManager"]

_NOT_SENT = (NewConnectionError, NameResolutionError, ConnectTimeoutError)
_PORTS = {"http": 80, "https": 443}
_MOST_HOPS = 10
# urllib3 follows redirects through `urlopen` again: what a stranger is sent is not ours.
_STRANGER: ContextVar[bool] = ContextVar("oncekey_urllib3", default=False)


class RetryPoolManager(urllib3.PoolManager):
    """Give each POST and PATCH one key, and send it until there is a definite answer.

    What is definite is returned, whatever its status. What is not is raised: NothingSent, GaveUp or OutcomeUnknown,
    each of which is also a `urllib3.exceptions.HTTPError`. `terms` are those of the other transports: `retries_by`
    says how often, `carriage` where the key travels. The choices of `urllib3.PoolManager` may follow.
    """

    def __init__(
        self,
        *,
        retries_by: Retries | None = None,
        carriage: Carriage | None = None,
        journal: Journal | None = None,
        **choices: Any,
    ) -> None:
        super().__init__(**choices)
        self._terms = Terms(retries_by or Retries(), carriage or Carriage(), journal, HTTPError)

    def urlopen(  # type: ignore[override]
        self,
        method: str,
        url: str,
        redirect: bool = True,  # noqa: FBT001, FBT002 - the signature of urllib3
        **kw: Any,
    ) -> urllib3.BaseHTTPResponse:
        if _STRANGER.get():
            return super().urlopen(method, url, redirect, **kw)
        body, given = kw.get("body"), kw.get("headers")
        headers = tuple(dict(self.headers if given is None else given).items())
        guard = Guard.of(self._terms, Request(method.upper(), url, headers, whole(body)))
        if guard is None:
            return super().urlopen(method, url, redirect, **kw)
        left = _MOST_HOPS
        while True:
            response: urllib3.BaseHTTPResponse = run(guard, partial(self._sent, guard, kw))
            where = response.get_redirect_location() if redirect else None
            if not where or left == 0:
                return response
            left -= 1
            asked = guard.prepared
            to = _joined(asked.url, where)
            if response.status not in KEEP_METHOD or _origin(to) != _origin(asked.url):
                return self._strange(response.status, to, asked, kw)
            guard = guard.onward(Request(asked.method, to, asked.headers, asked.body))

    def _strange(self, status: int, to: str, asked: Request, kw: dict[str, Any]) -> urllib3.BaseHTTPResponse:
        """Follow a redirect to another origin, or to what a POST has led to: without the key, and once."""
        carriage, method, body = self._terms.carriage, asked.method, asked.body
        dropped = {
            name.lower() for name in Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT if _origin(to) != _origin(asked.url)
        }
        dropped |= {carriage.header.lower()}
        if status in KEEP_METHOD and carriage.member:
            body = carriage.key_out_of(body)
        elif status not in KEEP_METHOD:
            method, body, dropped = "GET", b"", dropped | {"content-type", "content-length"}
        headers = {name: value for name, value in asked.headers if name.lower() not in dropped}
        stranger = _STRANGER.set(True)
        try:
            return super().urlopen(method, to, True, **kw | {"body": body or None, "headers": headers})
        finally:
            _STRANGER.reset(stranger)

    def _sent(self, guard: Guard, kw: dict[str, Any], left: float | None) -> Reply | Lost:
        asked = guard.prepared
        how = kw | {"body": asked.body, "headers": urllib3.HTTPHeaderDict(dict(asked.headers)), "retries": Retry(0)}
        limit = kw.get("timeout", self.connection_pool_kw.get("timeout"))
        if limit is None or isinstance(limit, int | float):
            how["timeout"] = within(limit, left)
        try:
            response = super().urlopen(asked.method, asked.url, False, **how)
            headers = lower(dict(response.headers))
            body = b"" if streams(headers) else response.data
        except LocationValueError:
            raise
        except HTTPError as error:
            return _lost(error)
        if unframed(response.status, headers, body):
            return Lost(Sent.MAYBE, HTTPError("the answer was cut"))
        if kw.get("preload_content") is False and not streams(headers):
            response = _unread(response, body)
        return Reply(Answer(response.status, headers, body), response)


def _unread(response: urllib3.BaseHTTPResponse, body: bytes) -> urllib3.BaseHTTPResponse:
    """The same answer, to be read by who wanted to read it."""
    headers = urllib3.HTTPHeaderDict(response.headers)
    headers.discard("Content-Encoding")
    how: dict[str, Any] = {
        "version": response.version,
        "version_string": response.version_string,
        "reason": response.reason,
    }
    how |= {"retries": response.retries, "request_url": response.url, "preload_content": False}
    return urllib3.HTTPResponse(io.BytesIO(body), headers, response.status, **how)


def _joined(url: str, where: str) -> str:
    try:
        return urljoin(url, where)
    except ValueError as error:
        raise LocationParseError(where) from error


def _origin(url: str) -> tuple[str | None, str | None, int | None]:
    parts = parse_url(url)
    return parts.scheme, parts.host, parts.port or _PORTS.get(parts.scheme or "")


def _lost(error: HTTPError) -> Lost:
    if hopeless(error):
        raise error
    reason = error.reason if isinstance(error, MaxRetryError) else error
    return Lost(Sent.NO if isinstance(reason, _NOT_SENT) else Sent.MAYBE, error)
