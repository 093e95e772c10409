"""Answers from a worker's own memory, through both gateways."""

from __future__ import annotations

from typing import Any

import pytest

from oncekey import NotExecuted, Policy
from oncekey.stores.memory import MemoryStore
from tests.adapters import asgi_kit, wsgi_kit

NEVER = Policy(recall_for=None)


async def through_asgi(said: list[str], asked: list[Any], policy: Policy, body: bytes = b"") -> list[tuple[int, bytes]]:
    app = asgi_kit.Guarded(asgi_kit.Shop(), policy=policy, sinks=(lambda event: said.append(event.name),))
    _spy(app.store, asked)
    events = [asgi_kit.chunks(b'{"a":1}'), asgi_kit.chunks(body or b'{"a":1}')]
    answers = [await asgi_kit.call(app, events=each) for each in events]
    return [(each.status, each.body) for each in answers]


async def through_wsgi(said: list[str], asked: list[Any], policy: Policy, body: bytes = b"") -> list[tuple[int, bytes]]:
    app = wsgi_kit.Guarded(wsgi_kit.Shop(), policy=policy, sinks=(lambda event: said.append(event.name),))
    _spy(app.store, asked)
    answers = [wsgi_kit.call(app, wsgi_kit.post(body=each)) for each in (b'{"a":1}', body or b'{"a":1}')]
    return [(each.status, each.body) for each in answers]


def _spy(store: MemoryStore, asked: list[Any]) -> None:
    claim = store.claim

    def spying(many: Any) -> Any:
        asked.extend(many)
        return claim(many)

    store.claim = spying  # type: ignore[method-assign]


@pytest.mark.parametrize("through", [through_asgi, through_wsgi])
@pytest.mark.parametrize(("policy", "times"), [(Policy(), 1), (NEVER, 2)])
async def test_a_retry_soon_after_needs_no_store(through: Any, policy: Policy, times: int) -> None:
    """The worker that gave an answer gives it again by itself, and says so like any replay; unless it may not."""
    said: list[str] = []
    asked: list[Any] = []
    first, again = await through(said, asked, policy)
    assert first == again
    assert len(asked) == times
    assert said == ["created", "completed", "replayed"]


@pytest.mark.parametrize("through", [through_asgi, through_wsgi])
async def test_another_request_is_for_the_store(through: Any) -> None:
    """The same JSON in another spelling is a replay, other JSON is misuse: the record says which."""
    asked: list[Any] = []
    first, again = await through([], asked, Policy(), b'{ "a": 1 }')
    assert (first, len(asked)) == (again, 2)
    _, other = await through([], asked, Policy(), b'{"a":2}')
    assert (other[0], len(asked)) == (422, 4)


async def test_what_did_not_succeed_is_not_kept() -> None:
    """A released key runs again, however soon its retry comes."""
    shop = asgi_kit.Shop()
    app = asgi_kit.Guarded(shop)
    failing = [NotExecuted("not now")]

    async def once(scope: Any, receive: Any, send: Any) -> None:
        if failing:
            raise failing.pop()
        await shop(scope, receive, send)

    app.app.app = once
    assert (await asgi_kit.call(app)).status == 503
    assert (await asgi_kit.call(app)).status == 201


async def test_every_request_says_whose_it_is() -> None:
    """Whether a caller may still call is asked before anything is looked for."""
    callers: list[str | None] = ["alice", "bob", None]
    app = asgi_kit.Guarded(asgi_kit.Shop(), scope=lambda request: callers.pop(0))
    assert [(await asgi_kit.call(app)).status for _ in range(3)] == [201, 201, 401]
    assert len(app.records) == 2
