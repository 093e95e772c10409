"""Finishing what an earlier program has left: the open operations of a journal are sent again, each under its key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from oncekey.client.carriage import Carriage
from oncekey.client.errors import GaveUp, IntentOver
from oncekey.client.httpx import RetryTransport
from oncekey.client.journal import Entry, Journal
from oncekey.client.machine import Retries
from oncekey.errors import ConfigurationError

_MOST_HOPS = 10
_REFUSED = 400
Told = Callable[[Entry, str], object]


@dataclass(slots=True)
class Report:
    """What became of the open operations: the keys of each kind.

    `done`: there is a definite answer. `refused`: there is one, and it is no success. `left`: no answer yet.
    `waiting`: behind one that is left, in the same queue. `unresolved`: older than the server keeps answers, so never
    sent. `unsent`: the journal has no request of theirs, only the program that began them can go on.
    """

    done: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    unsent: list[str] = field(default_factory=list)

    @property
    def finished(self) -> bool:
        """Nothing is open any more."""
        return not (self.left or self.waiting or self.unresolved or self.unsent)


def origins(entries: list[Entry]) -> set[str]:
    """Where the requests of these operations go."""
    return {_origin(entry) for entry in entries if entry.request is not None}


def resume(
    journal: Journal,
    client: httpx.Client,
    *,
    queue: str | None = None,
    origin: str | None = None,
    told: Told = lambda entry, word: None,
) -> Report:
    """Send every open operation, in order within its queue, with a client whose transport is a RetryTransport.

    `sender` makes such a client. Give it the credentials: the journal has none.
    """
    report = Report()
    blocked: set[str] = set()
    for entry in journal.pending(queue, limit=journal.at_most):
        if origin is None or entry.request is None or _origin(entry) == origin:
            word = _one(journal, client, entry, blocked)
            getattr(report, word).append(entry.key)
            told(entry, word)
    return report


def _one(journal: Journal, client: httpx.Client, entry: Entry, blocked: set[str]) -> str:
    if entry.queue in blocked:
        return "waiting"
    word = _sent(journal, client, entry)
    if word not in {"done", "refused"} and entry.queue:
        blocked.add(entry.queue)  # order is what a queue is for
    return word


def _sent(journal: Journal, client: httpx.Client, entry: Entry) -> str:
    if journal.unresolved(entry):
        return "unresolved"
    if entry.request is None:
        return "unsent"
    method, url, headers, body = entry.request.method, entry.request.url, entry.request.headers, entry.request.body
    unframed = [(name, value) for name, value in headers if name.lower() not in {"content-length", "host"}]
    request = client.build_request(method, url, headers=unframed, content=body, extensions={"oncekey.key": entry.key})
    try:
        _followed(client, request)
    except IntentOver:
        return "unresolved"
    except (GaveUp, httpx.HTTPError, httpx.InvalidURL) as error:
        if not isinstance(error, GaveUp):
            journal.troubled(entry.key, str(error))
        return "left"
    return _word(journal, entry.key)


def _followed(client: httpx.Client, request: httpx.Request) -> None:
    """Within the origin only: neither the key nor the credentials nor the body are for strangers."""
    for _ in range(_MOST_HOPS):
        onward = client.send(request, follow_redirects=False).next_request
        if onward is None or onward.method != request.method:
            return
        if (onward.url.scheme, onward.url.netloc) != (request.url.scheme, request.url.netloc):
            raise httpx.TooManyRedirects(f"it redirects to {onward.url.host}, another server: it was not sent there")
        request = onward
    raise httpx.TooManyRedirects("it redirects again and again")


def _word(journal: Journal, key: str) -> str:
    """What the journal knows of it now."""
    entry = journal.look(key)
    if entry is None or not entry.done:
        return "left"
    return "refused" if entry.answer is not None and entry.answer.status >= _REFUSED else "done"


def _origin(entry: Entry) -> str:
    parts = urlsplit(entry.request.url if entry.request else "")
    return f"{parts.scheme}://{parts.netloc}"


def sender(
    journal: Journal,
    *,
    headers: dict[str, str] | None = None,
    retries: Retries | None = None,
    carriage: Carriage | None = None,
) -> httpx.Client:
    """A client for `resume`: `headers` are the credentials that the journal does not keep."""
    for name in headers or {}:
        if carriage is not None and name.lower() == carriage.header.lower():
            raise ConfigurationError(f"{name} is the header of the key: each operation has its own in the journal")
    transport = RetryTransport(retries=retries, carriage=carriage, journal=journal)
    return httpx.Client(transport=transport, headers=headers)
