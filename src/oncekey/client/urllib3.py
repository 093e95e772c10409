"""Retries for urllib3, in one line.

    http = RetryPoolManager()

A PoolManager whose POST and PATCH requests get a key, one for all attempts; a key that you set yourself is kept.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    LocationValueError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
)
from urllib3.util.retry import Retry

from oncekey.client.carriage import Carriage
from oncekey.client.exchange import Guard, Lost, Reply, Terms, hopeless, lower, run, streams, unframed, whole
from oncekey.client.journal import Journal, Request
from oncekey.client.judging import Answer
from oncekey.client.machine import Retries, Sent

__all__ = ["RetryPoolManager"]

_NOT_SENT = (NewConnectionError, NameResolutionError, ConnectTimeoutError)
# A redirect is followed through `urlopen` again; the attempts are those of the first hop.
_INSIDE: ContextVar[bool] = ContextVar("oncekey_urllib3", default=False)


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
        if _INSIDE.get():
            return super().urlopen(method, url, redirect, **kw)
        body, given = kw.get("body"), kw.get("headers")
        headers = tuple(dict(self.headers if given is None else given).items())
        guard = Guard.of(self._terms, Request(method.upper(), url, headers, whole(body)))
        if guard is None:
            return super().urlopen(method, url, redirect, **kw)
        prepared = dict(guard.prepared.headers)
        kept = Retry.DEFAULT_REMOVE_HEADERS_ON_REDIRECT | {self._terms.carriage.header.lower()}
        once = Retry(connect=0, read=0, status=0, other=0, redirect=10, remove_headers_on_redirect=kept)
        kw |= {"body": guard.prepared.body, "headers": urllib3.HTTPHeaderDict(prepared), "retries": once}
        response: urllib3.BaseHTTPResponse = run(guard, lambda: self._sent(method, url, redirect, kw))
        return response

    def _sent(self, method: str, url: str, redirect: bool, kw: dict[str, Any]) -> Reply | Lost:  # noqa: FBT001
        inside = _INSIDE.set(True)
        try:
            response = super().urlopen(method, url, redirect, **kw)
            headers = lower(dict(response.headers))
            body = b"" if streams(headers) else response.data
        except LocationValueError:
            raise
        except HTTPError as error:
            return _lost(error)
        finally:
            _INSIDE.reset(inside)
        if unframed(response.status, headers, body):
            return Lost(Sent.MAYBE, HTTPError("the answer was cut inside its headers"))
        return Reply(Answer(response.status, headers, body), response)


def _lost(error: HTTPError) -> Lost:
    if hopeless(error):
        raise error
    reason = error.reason if isinstance(error, MaxRetryError) else error
    return Lost(Sent.NO if isinstance(reason, _NOT_SENT) else Sent.MAYBE, error)
