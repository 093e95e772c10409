"""The hook for requests: an adapter around the session's own, which sees request, answer and error alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter

from oncekey.core.providers import Provider
from oncekey.effects.calls.hook import Asked, Hook, answered


class KeyedAdapter(BaseAdapter):
    """Requests that change something are calls of the operation at hand. `adapter` is what sends them."""

    def __init__(self, adapter: BaseAdapter | None, hook: Hook) -> None:
        super().__init__()
        self._inner = adapter or HTTPAdapter()
        self._hook = hook

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: FBT001, FBT002 - the signature of requests
        timeout: Any = None,
        verify: bool | str = True,  # noqa: FBT001, FBT002 - as above
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """Send one request."""
        keyed = request.copy()
        call = self._hook.thread_call(_asked(keyed))
        if call is None:
            return self._inner.send(keyed, stream, timeout, verify, cert, proxies)
        with call:
            try:
                response = self._inner.send(keyed, stream, timeout, verify, cert, proxies)
            except requests.ConnectionError as error:
                if self._never_sent(error):
                    call.not_executed()
                raise
            answered(call, response.status_code)
        return response

    def _never_sent(self, error: requests.ConnectionError) -> bool:
        """Whether no byte has left; sure only of requests' own adapter without retries, which may have tried before."""
        inner = self._inner
        if type(inner) is not HTTPAdapter or inner.max_retries.total not in (0, False):
            return False
        reason = getattr(error.args[0] if error.args else None, "reason", None)
        # By name: urllib3 belongs to requests, and may be vendored by it.
        return type(reason).__name__ in {"NewConnectionError", "NameResolutionError", "ConnectTimeoutError"}

    def close(self) -> None:
        self._inner.close()


def install(
    session: requests.Session, *, provider: str | Provider | None = None, replace_keys: bool = False
) -> requests.Session:
    """Put the hook around every adapter of a session, and give it back. The rest is as in hook.Hook."""
    hook = Hook(provider, replace_keys=replace_keys)
    for prefix, adapter in list(session.adapters.items()):
        session.mount(prefix, KeyedAdapter(adapter, hook))
    return session


def _asked(request: requests.PreparedRequest) -> Asked:
    parts = urlsplit(request.url or "")
    host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    body = request.body
    if isinstance(body, str):
        body = body.encode()
    known = body if isinstance(body, bytes) else b"" if body is None else None
    return Asked(request.method or "", f"{parts.scheme}://{host}{port}{parts.path}", host, request.headers, known)


__all__ = ["KeyedAdapter", "install"]
