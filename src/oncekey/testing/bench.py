"""What a scenario sees of a store: plain verbs whatever its colour, and time that can be waited for.

A scenario is written once. An async store is driven from a private event loop's thread; a store whose clock cannot be
set is given real time to pass, so scenarios let only short leases end and never count on one being still alive.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from oncekey.core.commands import Claim, Claimed, Look, Page, Purged, Renewal, Settlement, Swap, Written
from oncekey.core.decision import Decision
from oncekey.core.flows import Answer, Flow, Terms, enter
from oncekey.core.record import Record, Seen, State
from oncekey.stores.contract import AsyncStore, Finding, Listener, Store
from oncekey.testing.clock import ManualClock
from oncekey.testing.expect import RuleBroken, stands, won

T = TypeVar("T")
AnyStore = Store | AsyncStore

HOUR = 3_600_000  # a lease or retention that does not end while a scenario runs
SOON = 40  # one that shall end: waited for in real time where the clock cannot be set
PATIENCE = 30.0  # seconds after which a store that does not answer has failed
POLL = 0.003
TERMS = Terms(keep_for=HOUR, reconcile_after_for=HOUR)
FINGERPRINT = bytes(range(1, 34))


class Exactly:
    """The same request is the one with the same fingerprint."""

    def __init__(self, fingerprint: bytes) -> None:
        self.fingerprint = fingerprint

    def same_request(self, stored: bytes) -> bool:
        """Whether the stored fingerprint is this one."""
        return stored == self.fingerprint


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="oncekey-bench-loop", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, and wait here."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def close(self) -> None:
        """Stop the loop and its thread."""
        self.wait_for(self.loop.shutdown_asyncgens())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


class Driven:
    """An async store with the verbs of a sync one."""

    def __init__(self, store: AsyncStore, thread: LoopThread) -> None:
        self.url = store.url
        self.store = store
        self.thread = thread

    def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        return self.thread.wait_for(self.store.claim(many))

    def settle(self, many: Sequence[Settlement]) -> list[Written]:
        return self.thread.wait_for(self.store.settle(many))

    def renew(self, many: Sequence[Renewal]) -> list[Written]:
        return self.thread.wait_for(self.store.renew(many))

    def swap(self, swap: Swap) -> Written:
        return self.thread.wait_for(self.store.swap(swap))

    def put(self, many: Sequence[Record]) -> list[Written]:
        return self.thread.wait_for(self.store.put(many))

    def get(self, id_: bytes) -> Seen | None:
        return self.thread.wait_for(self.store.get(id_))

    def watch(self, id_: bytes) -> Seen | None:
        return self.thread.wait_for(self.store.watch(id_))

    def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        return self.thread.wait_for(
            self.store.scan(states, due_before=due_before, undated=undated, after=after, limit=limit)
        )

    def purge(self, limit: int = 500) -> Purged:
        return self.thread.wait_for(self.store.purge(limit))

    def stats(self) -> dict[str, int | str]:
        return self.thread.wait_for(self.store.stats())

    def migrate(self) -> list[str]:
        return self.thread.wait_for(self.store.migrate())

    def check(self) -> list[Finding]:
        return self.thread.wait_for(self.store.check())

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        return self.thread.wait_for(self.store.listen(told))

    def close(self) -> None:
        self.thread.wait_for(self.store.close())


class Bench:
    """A store on the bench. `open_` opens one more client of the same records at each call; `clock` is theirs."""

    def __init__(self, open_: Callable[[], AnyStore], clock: ManualClock | None = None) -> None:
        self._open = open_
        self._clock = clock
        self._thread: LoopThread | None = None
        self._clients: list[Store] = []
        self.store = self.another()

    def another(self) -> Store:
        """One more client of the same records."""
        opened = self._open()
        if inspect.iscoroutinefunction(opened.claim):
            self._thread = self._thread or LoopThread()
            client: Store = Driven(cast("AsyncStore", opened), self._thread)
        else:
            client = cast("Store", opened)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close every client."""
        try:
            for client in reversed(self._clients):
                client.close()
        finally:
            if self._thread is not None:
                self._thread.close()

    # ---- time ----------------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The store's own time."""
        return self.store.scan((State.UNKNOWN,), limit=1).now

    def wait_until(self, instant: int | None) -> None:
        """Return when the store's clock has reached this instant."""
        if instant is None:
            raise RuleBroken("a time that should end is missing from the record")
        if self._clock is not None:
            self._clock.reach(instant)
        deadline = time.monotonic() + PATIENCE
        while self.now() < instant:
            if time.monotonic() > deadline:
                raise RuleBroken(f"the store's clock did not reach {instant} within {PATIENCE:g} s")
            time.sleep(POLL)

    def outwait(self, length: int = SOON) -> None:
        """Return when all that was to last so long has ended; a record may be gone by then, so none is asked."""
        self.wait_until(self.now() + length)

    # ---- short ways ----------------------------------------------------------------------------------------------

    def won(self, **changes: Any) -> Claim:
        """A claim that was granted."""
        claim = a_claim(**changes)
        won(self.store.claim([claim])[0])
        return claim

    def lapsed(self, **changes: Any) -> Claim:
        """A granted claim whose lease is over, and nobody has noticed."""
        claim = a_claim(**({"lease_for": SOON} | changes))
        # A slow store may see so short a lease end before it answers: it then shows the claim instead of granting it.
        self.store.claim([claim])
        self.wait_until(self.record(claim.id).lease_until)
        return claim

    def settled(self, target: State = State.COMPLETED, **changes: Any) -> Claim:
        """A claim that was granted and settled."""
        claim = self.won()
        self.settle(claim, target, **changes)
        return claim

    def settle(self, claim: Claim, target: State = State.COMPLETED, **changes: Any) -> Written:
        """Settle one claim."""
        return self.store.settle([a_settlement(claim, target, **changes)])[0]

    def renew(self, claim: Claim, **changes: Any) -> Written:
        """Renew one claim."""
        return self.store.renew([a_renewal(claim, **changes)])[0]

    def record(self, id_: bytes) -> Record:
        """What stands there."""
        return stands(self.store.get(id_), "the record is there")

    def seen(self, id_: bytes) -> Seen:
        """What stands there, and now."""
        found = self.store.get(id_)
        stands(found, "the record is there")
        return cast("Seen", found)

    def enter(self, claim: Claim, terms: Terms = TERMS, store: Store | None = None) -> Decision:
        """Ask the rules what the request with this claim may do."""
        return drive(store or self.store, enter(claim, Exactly(claim.fingerprint), terms))


class OneByOne:
    """Carries out single commands on a store of batches."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def look(self, command: Look) -> Answer:
        return self.store.get(command.id)

    def claim(self, command: Claim) -> Answer:
        return self.store.claim([command])[0]

    def settle(self, command: Settlement) -> Answer:
        return self.store.settle([command])[0]

    def renew(self, command: Renewal) -> Answer:
        return self.store.renew([command])[0]

    def swap(self, command: Swap) -> Answer:
        return self.store.swap(command)


def drive(store: Store, flow: Flow) -> Decision:
    """Run a flow of core.flows on this store, one command at a time."""
    performer = OneByOne(store)
    try:
        command = next(flow)
        while True:
            command = flow.send(command.on(performer))
    except StopIteration as end:
        return cast("Decision", end.value)


def a_claim(**changes: Any) -> Claim:
    """A claim on a key of its own."""
    fresh = Claim(secrets.token_bytes(20), secrets.token_bytes(16), FINGERPRINT, HOUR)
    return fresh._replace(**changes)


def a_settlement(claim: Claim, target: State = State.COMPLETED, **changes: Any) -> Settlement:
    """The settlement of this claim by its owner."""
    plain = Settlement(claim.id, claim.token, target, outcome=b"answer", keep_for=HOUR)
    return plain._replace(**changes)


def a_renewal(claim: Claim, **changes: Any) -> Renewal:
    """The renewal of this claim by its owner."""
    return Renewal(claim.id, claim.token, lease_for=2 * HOUR, cap_for=24 * HOUR)._replace(**changes)


def another_request(claim: Claim, **changes: Any) -> Claim:
    """A later request with the same key: its own token."""
    return claim._replace(token=secrets.token_bytes(16), lease_for=HOUR)._replace(**changes)


def at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """Do all of it at the same time, in threads; the first error is raised."""
    barrier = threading.Barrier(len(works))
    results: list[T | BaseException] = [RuleBroken("a thread did not end")] * len(works)

    def one(place: int, work: Callable[[], T]) -> None:
        try:
            barrier.wait(PATIENCE)
            results[place] = work()
        except BaseException as trouble:  # noqa: BLE001 - raised again below, in the thread of the caller
            results[place] = trouble

    threads = [threading.Thread(target=one, args=(place, work), daemon=True) for place, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return cast("list[T]", results)


__all__ = [
    "FINGERPRINT",
    "HOUR",
    "PATIENCE",
    "SOON",
    "TERMS",
    "AnyStore",
    "Bench",
    "Driven",
    "Exactly",
    "OneByOne",
    "a_claim",
    "a_renewal",
    "a_settlement",
    "another_request",
    "at_once",
    "drive",
]
