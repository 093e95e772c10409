"""Retries for requests, in one line.

    session.mount("https://api.example.com/", RetryAdapter())

It wraps any other adapter. POST and PATCH get a key, one for all attempts; a key that you set yourself is kept.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3 import HTTPResponse
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from oncekey.client.carriage import Carriage
from oncekey.client.exchange import Guard, Lost, Reply, Terms, hopeless, lower, run, streams, unframed, whole, within
from oncekey.client.journal import Journal, Request
from oncekey.client.judging import Answer
from oncekey.client.machine import Retries, Sent

__all__ = ["RetryAdapter"]

_TROUBLE = (
    *(requests.ConnectionError, requests.Timeout),
    *(requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError),
    *(requests.exceptions.InvalidHeader, requests.exceptions.RetryError),
)
_NOT_SENT = (NewConnectionError, NameResolutionError, ConnectTimeoutError)
# In the hooks of a request that a redirect has made: where the first one went, and its guard.
_BEGAN = "oncekey.began"


def _lost(error: requests.RequestException) -> Lost:
    if hopeless(error):
        raise error
    inner = error.args[0] if error.args else None
    reason = getattr(inner, "reason", inner)
    not_sent = isinstance(error, requests.ConnectTimeout) or isinstance(reason, _NOT_SENT)
    return Lost(Sent.NO if not_sent else Sent.MAYBE, error)


def _reply(response: requests.Response) -> Reply | Lost:
    headers = lower(response.headers)
    body = b"" if streams(headers) else response.content
    if unframed(response.status_code, headers, body):
        return Lost(Sent.MAYBE, requests.ConnectionError("the answer was cut inside its headers"))
    return Reply(Answer(response.status_code, headers, body), response)


def _put(request: requests.PreparedRequest, body: bytes) -> None:
    request.body = body or None
    request.headers.pop("Transfer-Encoding", None)
    request.headers["Content-Length"] = str(len(body))


class RetryAdapter(BaseAdapter):
    """Give each POST and PATCH one key, and send it until there is a definite answer.

    What is definite is returned, whatever its status. What is not is raised: NothingSent, GaveUp or OutcomeUnknown,
    each of which is also a `requests.ConnectionError`. A success whose headers were cut is not taken for one.
    """

    def __init__(
        self,
        adapter: BaseAdapter | None = None,
        *,
        retries: Retries | None = None,
        carriage: Carriage | None = None,
        journal: Journal | None = None,
    ) -> None:
        super().__init__()
        self._inner = adapter or HTTPAdapter()
        self._terms = Terms(retries or Retries(), carriage or Carriage(), journal, requests.ConnectionError)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - the signature of requests
        timeout: Any = None,
        verify: bool | str = True,  # noqa: FBT001, FBT002 - as above
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        how = {"stream": stream, "timeout": timeout, "verify": verify, "cert": cert, "proxies": proxies}
        guard = self._guard(request)
        if guard is None:
            return self._inner.send(request, **how)
        response: requests.Response = run(guard, partial(self._sent, request, how))
        return response

    def _guard(self, request: requests.PreparedRequest) -> Guard | None:
        """A redirect to another origin, or one that has become a GET, loses the key: it is not for strangers."""
        url, carriage = urlsplit(request.url or ""), self._terms.carriage
        origin = f"{url.scheme}://{url.netloc}"
        # requests copies the hooks to each hop of a redirect, and asks only for those called "response".
        hooks: dict[str, Any] = request.hooks
        began, earlier = hooks.get(_BEGAN, (origin, None))
        if began != origin or (earlier is not None and request.method != earlier.prepared.method):
            request.headers.pop(carriage.header or "-", None)
            if carriage.member and request.body:
                _put(request, carriage.key_out_of(whole(request.body)))
            return None
        carried = (request.method or "").upper() in carriage.methods
        if not carried and carriage.header not in request.headers:
            return None
        asked = Request(request.method or "", request.url or "", tuple(request.headers.items()), whole(request.body))
        guard = earlier.onward(asked) if earlier else Guard.of(self._terms, asked)
        if guard is not None:
            hooks[_BEGAN] = (origin, guard)
            request.headers.update(dict(guard.prepared.headers))
            _put(request, guard.prepared.body)
        return guard

    def _sent(self, request: requests.PreparedRequest, how: dict[str, Any], left: float | None) -> Reply | Lost:
        asked = how["timeout"]
        if isinstance(asked, tuple):
            asked = tuple(within(limit, left) for limit in asked)
        elif asked is None or isinstance(asked, int | float):
            asked = within(asked, left)
        try:
            reply = _reply(self._inner.send(request, **how | {"timeout": asked}))
        except _TROUBLE as error:
            return _lost(error)
        if how["stream"] and isinstance(reply, Reply) and not streams(reply.answer.headers):
            reply.response.raw = HTTPResponse(io.BytesIO(reply.answer.body), preload_content=False)
        return reply

    def close(self) -> None:
        self._inner.close()
