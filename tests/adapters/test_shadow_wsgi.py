"""Shadow mode under WSGI: the same, in threads beside the server's."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from oncekey import Policy, by_header
from oncekey.adapters.wsgi import OnceKeyWSGI
from oncekey.core.keys import SHADOW
from oncekey.core.record import State
from oncekey.engine import events
from oncekey.engine.events import Event
from oncekey.engine.threaded import Engine
from oncekey.errors import StoreUnavailable
from oncekey.http.aside import Aside
from oncekey.stores.memory import MemoryStore
from tests.adapters.wsgi_kit import Closing, Server, Shop, call, post


def wait_for(question: Callable[[], Any]) -> None:
    """Until it is so."""
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.001)


class Shadowed:
    """An application in shadow mode over a memory store, and what was told of it."""

    def __init__(self, app: Any, store: Any = None, **choices: Any) -> None:
        self.store = store or MemoryStore()
        self.heard: list[Event] = []
        choices.setdefault("scope", by_header("authorization"))
        choices.setdefault("sinks", (self.heard.append,))
        self.app = OnceKeyWSGI(app, self.store, shadow=True, **choices)

    def ask(self, environ: Any = None) -> Any:
        """Send a request, and wait until its shadow is written down."""
        before = len(self.heard)
        answer = call(self.app, environ)
        wait_for(lambda: len(self.heard) > before and not self.store.scan((State.CLAIMED,)).records)
        return answer

    @property
    def told(self) -> list[str]:
        return [event.name for event in self.heard]


def test_a_duplicate_runs_again_and_is_counted() -> None:
    """Both requests reach the application, and both get its own answer."""
    shadowed = Shadowed(Shop())
    assert [shadowed.ask().body for _ in range(2)] == [b'{"n":1}', b'{"n":2}']
    assert shadowed.ask(post(body=b'{"a":2}')).status == 201
    assert shadowed.told == [events.SHADOW_CREATED, events.SHADOW_REPLAYED, events.SHADOW_KEY_MISUSE]
    [record] = shadowed.store.scan((State.COMPLETED,)).records
    assert record.label.endpoint == f"{SHADOW}POST /pay"


def test_the_answer_is_the_very_object() -> None:
    """A list keeps its length, a file its fast way, and nobody closes it but the server."""
    body = Closing([b"a", b"b"])
    server, shadowed = Server(), Shadowed(Shop(body=body))
    environ = post()
    server.serve(shadowed.app, environ)
    assert server.iterable is body
    assert (body.closed, body.asked) == (1, 2)
    assert environ["wsgi.file_wrapper"] is object


@pytest.mark.parametrize("how", ["read", "pieces", "lines", "iterate", "all lines", "late"])
def test_the_body_is_read_as_the_application_likes(how: str) -> None:
    """In whatever pieces; the shadow is the same, so that another way of reading is no other request."""
    seen: list[bytes] = []

    def reading(stream: Any) -> bytes:
        match how:
            case "pieces":
                return b"".join(iter(lambda: stream.read(3), b""))
            case "lines":
                return b"".join(iter(stream.readline, b""))
            case "iterate":
                return b"".join(stream)
            case "all lines":
                return b"".join(stream.readlines())
        return bytes(stream.read())

    def lately(environ: Any, start_response: Any) -> Iterator[bytes]:
        seen.append(reading(environ["wsgi.input"]))
        start_response("201 Created", [])
        yield b"x"

    def app(environ: Any, start_response: Any) -> Any:
        return lately(environ, start_response) if how == "late" else list(lately(environ, start_response))

    store = MemoryStore()
    body = b'{"a":\n1}\n'
    assert Shadowed(Shop(), store).ask(post(body=body)).status == 201
    shadowed = Shadowed(app, store)
    assert shadowed.ask(post(body=body)).status == 201
    assert seen == [body]
    assert shadowed.told == [events.SHADOW_REPLAYED]


def test_a_generator_has_its_end_too() -> None:
    """It begins when the server asks for its first piece, long after the call has returned."""

    def lately(environ: Any, start_response: Any) -> Iterator[bytes]:
        environ["wsgi.input"].read()
        start_response("500 Internal Server Error", [])
        yield b"x"

    shadowed = Shadowed(lately)
    for _ in range(2):
        call(shadowed.app)
        wait_for(lambda: shadowed.store.scan((State.COMPLETED,)).records)
    shadowed.app.shutdown()
    assert shadowed.told == [events.SHADOW_CREATED, events.SHADOW_UNKNOWN]


def test_an_upload_of_unknown_length_ends_where_it_ends() -> None:
    """As servers give it that have undone the chunks."""
    shadowed = Shadowed(Shop())
    environ = post() | {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    del environ["CONTENT_LENGTH"]

    class Twice(Shop):
        def __call__(self, environ: Any, start_response: Any) -> Any:
            stream = environ["wsgi.input"]
            while stream.read(4):
                pass
            start_response("201 Created", [])
            return [b""]

    shadowed = Shadowed(Twice())
    shadowed.ask(environ)
    assert shadowed.told == [events.SHADOW_CREATED]


def test_a_request_without_a_body_needs_no_reading() -> None:
    """In HTTP/1, no length is no body."""
    shadowed = Shadowed(lambda environ, start_response: start_response("204 No Content", []) and [])
    for _ in range(2):
        environ = post(body=b"")
        del environ["CONTENT_LENGTH"]
        shadowed.ask(environ)
    assert shadowed.told == [events.SHADOW_CREATED, events.SHADOW_REPLAYED]


def test_what_is_not_seen_whole_is_said() -> None:
    """Too large, or not read."""
    shop = Shop()
    shadowed = Shadowed(shop, policy=Policy(max_body=10))
    assert shadowed.ask(post(body=b"x" * 16)).status == 201
    assert shop.effects == [b"x" * 16]
    blind = Shadowed(lambda environ, start_response: start_response("204 No Content", []) and [])
    blind.ask()
    assert (shadowed.told, blind.told) == ([events.SHADOW_SKIPPED], [events.SHADOW_SKIPPED])


def test_an_exception_goes_where_it_went() -> None:
    """To the server, unchanged; its retry would be refused as unknown."""

    def failing(environ: Any, start_response: Any) -> Any:
        environ["wsgi.input"].read()
        raise SystemExit(1)

    shadowed = Shadowed(failing)
    for _ in range(2):
        with pytest.raises(SystemExit):
            shadowed.ask()
        wait_for(lambda: shadowed.heard and not shadowed.store.scan((State.CLAIMED,)).records)
    shadowed.app.shutdown()
    assert shadowed.told == [events.SHADOW_CREATED, events.SHADOW_UNKNOWN]


def test_a_key_that_is_none_is_counted() -> None:
    """And its request served."""
    shadowed = Shadowed(Shop(), required=True)
    assert shadowed.ask(post(None)).status == 201
    assert [(event.name, event.detail) for event in shadowed.heard] == [(events.SHADOW_KEY_REFUSED, "key-missing")]


def test_a_store_that_hangs_holds_no_request() -> None:
    """Nobody waits for the shadow; when too many wait for the store, requests are passed over."""
    go = threading.Event()

    class Hanging(MemoryStore):
        def claim(self, many: Any) -> Any:
            go.wait()
            raise StoreUnavailable("too late")

        settle = claim

    shadowed = Shadowed(Shop(), Hanging())
    assert shadowed.app.shadow is not None
    shadowed.app.shadow.aside = Aside(1, 2, "shadow-test")
    assert [call(shadowed.app, post(f"k-{number}")).status for number in range(3)] == [201, 201, 201]
    assert [(event.name, event.detail[-18:]) for event in shadowed.heard] == [
        (events.SHADOW_SKIPPED, "were being watched")
    ]
    go.set()
    shadowed.app.shutdown()
    assert shadowed.told[1:] == [events.SHADOW_ERROR] * 2


def test_a_length_of_any_number_of_digits_disturbs_no_request() -> None:
    """What the server lets pass is the application's to judge."""
    shadowed = Shadowed(Shop())
    assert call(shadowed.app, post() | {"CONTENT_LENGTH": "9" * 5000}).status == 201
    shadowed.app.shutdown()


def test_a_thread_that_cannot_start_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not begun does not count among those that are: after a shortage everything is watched again."""
    aside = Aside(1, 1, "shadow-test")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert aside.begin(lambda: None) is None
    monkeypatch.undo()
    assert aside.begin(lambda: None) is not None
    aside.close()


def test_what_is_under_way_is_written_down_at_shutdown() -> None:
    """The last requests count like all others; after that, requests are served without a look."""
    shadowed = Shadowed(Shop())
    call(shadowed.app)
    shadowed.app.shutdown()
    assert [record.state for record in shadowed.store.scan(list(State)).records] == [State.COMPLETED]
    assert call(shadowed.app, post("another")).status == 201
    assert shadowed.told == [events.SHADOW_CREATED, events.SHADOW_SKIPPED]


def test_simultaneous_duplicates_have_one_first() -> None:
    """The store decides, as it will."""
    shadowed = Shadowed(Shop())
    threads = [threading.Thread(target=call, args=(shadowed.app, post())) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shadowed.app.shutdown()
    assert shadowed.told.count(events.SHADOW_CREATED) == 1
    assert len(shadowed.told) == 10


def test_an_engine_can_be_shared_with_guards() -> None:
    """What is told goes to its sinks, under the shadow's names alone."""
    heard: list[Event] = []
    engine = Engine(MemoryStore(), sinks=(heard.append,))
    app = OnceKeyWSGI(Shop(), engine, scope=by_header("authorization"), shadow=True)
    call(app)
    app.shutdown()
    assert [event.name for event in heard] == [events.SHADOW_CREATED]


def test_other_ways_of_reading_are_left_alone() -> None:
    """What the server's stream can do beside reading, it can still do."""
    tellings: list[int] = []

    def app(environ: Any, start_response: Any) -> Any:
        environ["wsgi.input"].read(2)
        tellings.append(environ["wsgi.input"].tell())
        start_response("201 Created", [])
        return [b""]

    shadowed = Shadowed(app)
    shadowed.ask(post() | {"wsgi.input": io.BytesIO(b'{"a":1}')})
    assert tellings == [2]
    assert shadowed.told == [events.SHADOW_SKIPPED]
