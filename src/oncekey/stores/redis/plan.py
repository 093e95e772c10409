"""The verbs of the contract as commands to Redis, and how their replies are read. Pure.

Every hot verb is one script call for the whole batch: the server's clock, the records and the lists of open records
change in one step, so that whatever is claimed is listed, and one round trip answers all. All keys of a store carry
one hash tag ({prefix}): no script ever has keys of different slots.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

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
from oncekey.core.record import Record, Seen
from oncekey.core.transitions import SETTLING
from oncekey.stores.contract import Finding, Wanted
from oncekey.stores.redis import commands, layout, listing, server
from oncekey.stores.redis.commands import Argument, Command, call, plain
from oncekey.stores.redis.layout import WRITTEN
from oncekey.stores.redis.trouble import sound

T = TypeVar("T")
Steps = Generator[list[Command], list[Any], T]

# The table's rows for settlements, as the script `settle` reads them.
ROWS = bytes(state for row in SETTLING for state in row)


class RedisPlan:
    """Commands for one prefix. `scopes`: completed records remember whose they are."""

    def __init__(self, prefix: str, *, scopes: bool = False) -> None:
        self.keys = listing.Keys(prefix)
        self.scopes = scopes

    def claim(self, many: Sequence[Claim]) -> Steps[list[Claimed]]:
        record = self.keys.record
        names = [self.keys.in_progress, *[record + claim.id for claim in many]]
        [reply] = yield [call(commands.CLAIM, names, [layout.encode_claim(claim) for claim in many])]
        now, *answers = sound(reply)
        return [
            Won(claim.lease_for) if answer == WRITTEN else Seen(layout.decode(claim.id, sound(answer)), now)
            for claim, answer in zip(many, answers, strict=True)
        ]

    def settle(self, many: Sequence[Settlement]) -> Steps[list[Written]]:
        record = self.keys.record
        names = [*self.keys.sets, *[record + settlement.id for settlement in many]]
        what: list[Argument] = [
            self.keys.channel,
            ROWS,
            int(self.scopes),
            *[layout.encode_settlement(each) for each in many],
        ]
        [reply] = yield [call(commands.SETTLE, names, what)]
        return _written(many, reply)

    def renew(self, many: Sequence[Renewal]) -> Steps[list[Written]]:
        record = self.keys.record
        names = [self.keys.in_progress, *[record + renewal.id for renewal in many]]
        [reply] = yield [call(commands.RENEW, names, [layout.encode_renewal(each) for each in many])]
        return _written(many, reply)

    def swap(self, swap: Swap) -> Steps[Written]:
        [reply] = yield [listing.swapping(self.keys, swap)]
        [answer] = _written([swap], reply)
        return answer

    def put(self, many: Sequence[Record]) -> Steps[list[Written]]:
        [reply] = yield [listing.putting(self.keys, many)]
        return _written(many, reply)

    def get(self, id_: bytes) -> Steps[Seen | None]:
        [reply] = yield [call(commands.LOOK, [self.keys.record + id_], [])]
        return listing.found(id_, reply)

    def watch(self, id_: bytes) -> Steps[Seen | None]:
        [reply] = yield [call(commands.WATCH, [self.keys.record + id_], [])]
        return listing.found(id_, reply)

    def scan(self, wanted: Wanted, after: str | None, limit: int) -> Steps[Page]:
        return listing.scan(self.keys, wanted, after, limit)

    def purge(self, limit: int) -> Steps[Purged]:
        return listing.purge(self.keys, limit)

    def stats(self) -> Steps[dict[str, int | str]]:
        """Open records by state; the completed ones cannot be counted without looking at every key."""
        in_progress, unknown, failed, info = yield [
            *[plain("ZCARD", set_) for set_ in self.keys.sets[:3]],
            plain("INFO"),
        ]
        counts = {"in_progress": sound(in_progress), "unknown": sound(unknown), "failed_retryable": sound(failed)}
        return counts | ({} if isinstance(info, Exception) else server.figures(server.read(info)))

    def migrate(self) -> Steps[list[str]]:
        """Nothing: Redis has no schema, and each record names its layout."""
        yield from ()
        return []

    def check(self) -> Steps[list[Finding]]:
        info, appendfsync = yield [plain("INFO"), plain("CONFIG", "GET", "appendfsync")]
        if isinstance(info, Exception):
            return [server.no_info(info)]
        # CONFIG is forbidden on most rented servers; what it would say is then left open.
        known = [] if isinstance(appendfsync, Exception) else [part.decode() for part in appendfsync]
        return server.findings(server.read(info), dict(zip(known[::2], known[1::2], strict=True)))


def _written(many: Sequence[Settlement | Renewal | Swap | Record], reply: Any) -> list[Written]:
    now, *answers = sound(reply)
    return [
        DONE
        if answer == WRITTEN
        else Stale(None if answer is None else Seen(layout.decode(item.id, sound(answer)), now))
        for item, answer in zip(many, answers, strict=True)
    ]
