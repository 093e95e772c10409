"""Records in this process's memory, driven by the table itself. For tests and single processes: nothing survives."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from oncekey.core.commands import (
    DONE,
    Claim,
    Claimed,
    Page,
    Purged,
    Renewal,
    Settlement,
    Stale,
    Swap,
    Won,
    Written,
)
from oncekey.core.record import FINAL, IN_PROGRESS, Record, Seen, State, replace
from oncekey.core.transitions import TABLE, Facts, claimed, refusal, renewed, settled
from oncekey.errors import ConfigurationError
from oncekey.stores.contract import Finding, Listener, Wanted, counted, no_cursor
from oncekey.stores.siblings import alone


def wall_clock() -> int:
    """Milliseconds since the epoch: in one process the store's clock is the machine's."""
    return time.time_ns() // 1_000_000


C = TypeVar("C", Settlement, Renewal, Swap)

# Above so many records, and then at every doubling, what has expired is forgotten: nobody purges us from outside.
CROWDED = 4096


class _Subscription:
    def __init__(self, listeners: list[Callable[[bytes], None]], told: Callable[[bytes], None]) -> None:
        self._listeners = listeners
        self._told = told
        listeners.append(told)

    def close(self) -> None:
        if self._told in self._listeners:
            self._listeners.remove(self._told)


class MemoryStore:
    """A store for one process. `clock` answers milliseconds; give a manual one in tests."""

    url = "memory://"

    def __init__(self, clock: Callable[[], int] = wall_clock, *, shared_nothing: bool = False) -> None:
        self.clock = clock
        self.shared_nothing = shared_nothing
        self._records: dict[bytes, Record] = {}
        self._open: dict[bytes, None] = {}
        self._listeners: list[Callable[[bytes], None]] = []
        self._lock = threading.Lock()
        self._crowded = CROWDED

    def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        with self._lock:
            now = self.clock()
            if len(self._records) > self._crowded:
                for record in self._expired(now):
                    del self._records[record.id]
                self._crowded = max(CROWDED, 2 * len(self._records))
            return [self._claim(claim, now) for claim in many]

    def _claim(self, claim: Claim, now: int) -> Claimed:
        record = self._records.get(claim.id)
        if record is not None:
            return Seen(record, now)
        self._records[claim.id] = claimed(None, claim, now)
        self._open[claim.id] = None
        return Won(claim.lease_for)

    def settle(self, many: Sequence[Settlement]) -> list[Written]:
        with self._lock:
            now = self.clock()
            return [self._write(one.id, settled, one, now) for one in many]

    def renew(self, many: Sequence[Renewal]) -> list[Written]:
        with self._lock:
            now = self.clock()
            return [self._write(one.id, renewed, one, now) for one in many]

    def swap(self, swap: Swap) -> Written:
        with self._lock:
            return self._write(swap.id, _swapped, swap, self.clock())

    def put(self, many: Sequence[Record]) -> list[Written]:
        with self._lock:
            now = self.clock()
            return [self._put_new(record, now) for record in many]

    def _put_new(self, record: Record, now: int) -> Written:
        found = self._records.get(record.id)
        if found is not None:
            return Stale(Seen(found, now))
        self._put(record)
        return DONE

    def _write(self, id_: bytes, change: Callable[[Record, C, int], Record | None], command: C, now: int) -> Written:
        record = self._records.get(id_)
        if record is None:
            return Stale(None)
        new = change(record, command, now)
        if new is None:
            return Stale(Seen(record, now))
        if new is not record:
            self._put(new)
            # A take-over leaves the record in progress, and drops the mark with the attempt that was waited for.
            if record.waited and not (new.waited and new.state in IN_PROGRESS):
                self._tell(id_)
        return DONE

    def _put(self, record: Record) -> None:
        self._records[record.id] = record
        if record.state in FINAL:
            self._open.pop(record.id, None)
        else:
            self._open[record.id] = None

    def _tell(self, id_: bytes) -> None:
        for told in list(self._listeners):
            told(id_)

    def get(self, id_: bytes) -> Seen | None:
        with self._lock:
            record = self._records.get(id_)
            return Seen(record, self.clock()) if record is not None else None

    def watch(self, id_: bytes) -> Seen | None:
        with self._lock:
            record = self._records.get(id_)
            if record is not None and record.state in IN_PROGRESS and not record.waited:
                record = self._records[id_] = replace(record, waited=True)
            return Seen(record, self.clock()) if record is not None else None

    def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        with self._lock:
            now = self.clock()
            wanted = Wanted(tuple(states), due_before, undated)
            ids = self._records if set(states) & set(FINAL) else self._open
            found = [
                (_place(record, wanted), record) for id_ in ids if wanted.matches(record := self._records[id_], now)
            ]
            if after:
                last = _read_place(after)
                found = [one for one in found if one[0] > last]
            found.sort(key=_first)
            page = found[:limit]
            more = f"{page[-1][0][0]}:{page[-1][0][1].hex()}" if len(found) > limit else None
            return Page([record for _, record in page], more, now)

    def purge(self, limit: int = 500) -> Purged:
        with self._lock:
            now = self.clock()
            gone = self._expired(now)[:limit]
            for record in gone:
                del self._records[record.id]
            dated = [r for r in self._records.values() if _answer_over(r, now)][: limit - len(gone)]
            for record in dated:
                self._put(replace(record, state=State.EXPIRED, version=record.version + 1, outcome=b"", due_at=None))
            count = len(gone) + len(dated)
            return Purged(count, count >= limit)

    def _expired(self, now: int) -> list[Record]:
        facts = Facts(now)
        return [record for record in self._records.values() if refusal(TABLE["expire"], record, facts) is None]

    def stats(self) -> dict[str, int | str]:
        with self._lock:
            return dict(Counter(record.state.word for record in self._records.values()))

    def migrate(self) -> list[str]:
        return []

    def check(self) -> list[Finding]:
        if not self.shared_nothing and not alone():
            return [
                Finding(
                    "refusal",
                    "several workers run, each with records of its own in memory: a retry that reaches another "
                    "worker would run again",
                    "use sqlite:///oncekey.db or a server, run one worker, or write memory://?workers=separate if "
                    "every client always reaches the same worker",
                )
            ]
        return [
            Finding(
                "warning",
                "records live in this process only: they are lost when it ends, and other workers do not see them",
                "use sqlite:///oncekey.db, or a server, for anything that must survive",
            )
        ]

    def listen(self, told: Callable[[bytes], None]) -> Listener:
        return _Subscription(self._listeners, told)

    def close(self) -> None:
        """Nothing to close."""


def _place(record: Record, wanted: Wanted) -> tuple[int, bytes]:
    """Where a record stands in a listing: the queue goes by time, everything else by id."""
    return (record.due_at or 0 if wanted.queue else 0, record.id)


def _read_place(after: str) -> tuple[int, bytes]:
    try:
        at, id_ = after.split(":")
        return counted(at), bytes.fromhex(id_)
    except ValueError as wrong:
        raise no_cursor() from wrong


def _first(placed: tuple[tuple[int, bytes], Record]) -> tuple[int, bytes]:
    return placed[0]


def _swapped(record: Record, swap: Swap, _now: int) -> Record | None:
    seen = swap.seen
    same = record.version == seen.version and record.token == seen.token and record.expires_at == seen.expires_at
    return swap.new if same else None


def _answer_over(record: Record, now: int) -> bool:
    return record.state is State.COMPLETED and record.due_at is not None and record.due_at <= now


class AsyncMemoryStore:
    """The same store, awaited: nothing in it waits, so every verb answers at once."""

    def __init__(self, store: MemoryStore) -> None:
        self.url = store.url
        self.sync = store

    async def claim(self, many: Sequence[Claim]) -> list[Claimed]:
        return self.sync.claim(many)

    async def settle(self, many: Sequence[Settlement]) -> list[Written]:
        return self.sync.settle(many)

    async def renew(self, many: Sequence[Renewal]) -> list[Written]:
        return self.sync.renew(many)

    async def swap(self, swap: Swap) -> Written:
        return self.sync.swap(swap)

    async def put(self, many: Sequence[Record]) -> list[Written]:
        return self.sync.put(many)

    async def get(self, id_: bytes) -> Seen | None:
        return self.sync.get(id_)

    async def watch(self, id_: bytes) -> Seen | None:
        return self.sync.watch(id_)

    async def scan(
        self,
        states: Sequence[State],
        *,
        due_before: int | None = None,
        undated: bool = False,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        return self.sync.scan(states, due_before=due_before, undated=undated, after=after, limit=limit)

    async def purge(self, limit: int = 500) -> Purged:
        return self.sync.purge(limit)

    async def stats(self) -> dict[str, int | str]:
        return self.sync.stats()

    async def migrate(self) -> list[str]:
        return self.sync.migrate()

    async def check(self) -> list[Finding]:
        return self.sync.check()

    async def listen(self, told: Callable[[bytes], None]) -> Listener:
        return self.sync.listen(told)

    async def close(self) -> None:
        self.sync.close()


def open_sync(url: str, *, store_for: float) -> MemoryStore:
    """A new, empty store; two stores opened by `memory://` share nothing."""
    return MemoryStore(shared_nothing=_separate(url))


def open_async(url: str, *, store_for: float) -> AsyncMemoryStore:
    """The same, awaited."""
    return AsyncMemoryStore(open_sync(url, store_for=store_for))


def _separate(url: str) -> bool:
    rest = url.partition(":")[2].strip("/")
    if rest not in {"", "?workers=separate"}:
        raise ConfigurationError(f"store={url!r}: write memory://, or memory://?workers=separate")
    return bool(rest)
