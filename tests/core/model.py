"""An explicit-state search of the table: one key, three requests, and everything that may go wrong around it.

The record moves only by the rows of core.transitions, asked through `refusal`. Around it are modelled: requests that
decide in two steps (look, then compare-and-set), owners that begin, send an effect, hear of it or not, and settle;
effects in flight that land late or never; lost acknowledgements of claims; crashes at every point; leases that end at
any time; a sweep; a reconciler of three steps (cancel, read, write). A `Fault` takes one guard away.

Time is no number here: a lease is alive or over, an expiry is ahead or past, and either may turn at any step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal, NamedTuple

from oncekey.core.record import FINAL, IN_PROGRESS, Guarantee, Record, State
from oncekey.core.transitions import TABLE, Facts, Guard, refusal

G = Guard
# As plain numbers: an enum's hash is slow, and a search takes millions of them.
CLAIMED, EXECUTING, COMPLETED = int(State.CLAIMED), int(State.EXECUTING), int(State.COMPLETED)
FAILED, UNKNOWN = int(State.FAILED_RETRYABLE), int(State.UNKNOWN)
NOW, PAST, AHEAD = 1000, 999, 2000
NOBODY = -1


class Fault(StrEnum):
    """One thing done wrong. The names are those of the table of guards in docs/concepts.md."""

    NONE = "every guard in place"
    CLAIM_NOT_ATOMIC = "atomic claim"
    LAPSE_IS_PERMISSION = "lapse leads to unknown"
    UNKNOWN_IS_OPEN = "unknown blocks"
    COMPLETE_WITHOUT_TOKEN = "token on complete"
    COMPLETE_UNGUARDED = "token and state on complete"
    BEGIN_WITHOUT_TOKEN = "token on begin"
    TIMEOUT_IS_FAILURE = "time-out is unknown"
    CANCELLATION_RELEASES = "cancellation keeps the claim"
    READ_WITHOUT_CANCEL = "cancel before read in reconciliation"
    ANSWER_FIRST = "complete before answer"
    PURGE_IN_PROGRESS = "purge spares in_progress"
    PURGE_UNKNOWN = "purge spares unknown"
    RETENTION_TOO_SHORT = "retention covers retries"
    RECORD_LOST = "store keeps its records"
    NO_FINGERPRINT = "fingerprint check"
    FAIL_WITHOUT_TOKEN = "token on failed_retryable"
    NO_LATE_TRUTH = "late truth"
    SWAP_WITHOUT_VERSION = "version on swap"


@dataclass(frozen=True, eq=False)
class Setting:
    """What is searched: the guarantee, whether the handler latches itself, how the receiver treats repeats."""

    guarantee: Guarantee = Guarantee.AT_MOST_ONCE
    latch: bool = True
    receiver: Literal["plain", "fences", "deduplicates"] = "plain"
    prints: tuple[int, ...] = (0, 0, 0)
    fault: Fault = Fault.NONE
    failures_expire: bool = False  # the retention of failed records may end, and a purge removes them
    compares_token: bool = False  # compare-and-set looks at version and token


class Rec(NamedTuple):
    """The record, as far as the table looks at it."""

    state: int
    version: int
    token: int
    print: int
    over: bool = False  # its lease, or its retention
    outcome: int = NOBODY


class P:
    """Where a request stands; the ones from FINAL on are ends. Plain words: a search hashes millions of them."""

    IDLE, ASKING, SWAPPING, WON, BEGUN = "idle", "asking", "swapping", "won", "begun"
    SENT, KNOWN, STORED, OWING = "sent", "known", "stored", "owing"
    FINAL, BUSY, MISMATCH, UNKNOWN, NOTHING = "final", "busy", "mismatch", "unknown", "nothing"


class Req(NamedTuple):
    """A request: `late` if it was sent after somebody had a final answer; `value` is a version or an outcome."""

    phase: str = P.IDLE
    late: bool = False
    value: int = NOBODY
    row: str = ""


class E:
    """What became of an attempt's effect at the receiver."""

    UNSENT, FLYING, LANDED, CANCELLED, REPEATED = "unsent", "flying", "landed", "cancelled", "repeated"


class World(NamedTuple):
    """Everything."""

    rec: Rec | None
    requests: tuple[Req, ...]
    effects: tuple[str, ...]
    reconciler: tuple[int, int, bool] = (0, 0, False)  # step, version seen, effect seen
    mixed: bool = False  # another request's attempt ran under this key


Step = tuple[str, World]


def start(setting: Setting) -> World:
    """Nothing has happened."""
    number = len(setting.prints)
    return World(None, (Req(),) * number, (E.UNSENT,) * number)


# ---- the record --------------------------------------------------------------------------------------------------


@cache
def record_of(rec: Rec, guarantee: Guarantee) -> Record:
    """The record as the real code knows it."""
    until = PAST if rec.over else AHEAD
    return Record(
        id=b"key",
        state=State(rec.state),
        version=rec.version,
        token=bytes([rec.token + 1]) if rec.token != NOBODY else b"",
        fingerprint=bytes([rec.print]),
        guarantee=guarantee,
        lease_until=until if rec.state in IN_PROGRESS else None,
        expires_at=until if rec.state in FINAL else None,
        outcome=bytes([rec.outcome + 1]) if rec.outcome != NOBODY else b"",
    )


IGNORED: dict[Fault, tuple[Guard, tuple[str, ...]]] = {
    Fault.LAPSE_IS_PERMISSION: (G.MAY_TAKE_OVER, ("take_over",)),
    Fault.COMPLETE_WITHOUT_TOKEN: (G.TOKEN, ("complete", "late_truth")),
    Fault.BEGIN_WITHOUT_TOKEN: (G.TOKEN, ("begin",)),
    Fault.READ_WITHOUT_CANCEL: (G.CANNOT_LAND, ("reconcile_not_done",)),
    Fault.NO_FINGERPRINT: (G.SAME_REQUEST, ("retry", "take_over")),
    Fault.FAIL_WITHOUT_TOKEN: (G.TOKEN, ("not_begun", "no_effect")),
}


@cache
def allowed(setting: Setting, name: str, rec: Rec | None, facts: Facts) -> bool:
    """Ask the table, less the guard that is missing."""
    guard, rows = IGNORED.get(setting.fault, (None, ()))
    record = record_of(rec, setting.guarantee) if rec is not None else None
    return refusal(TABLE[name], record, facts, ignoring=(guard,) if guard and name in rows else ()) is None


def by_owner(attempt: int) -> Facts:
    """What an owner brings: its token, and the declaration that a failure it reports is none."""
    return Facts(NOW, token=bytes([attempt + 1]), no_effect=True)


def settle(setting: Setting, world: World, attempt: int, target: int, outcome: int = NOBODY) -> World | None:
    """The owner's settlement; None if the table refuses."""
    rows = {
        COMPLETED: ("complete", "late_truth"),
        FAILED: ("not_begun", "no_effect"),
        UNKNOWN: ("ambiguous",),
    }[target]
    rec = world.rec
    if rec is not None and target == COMPLETED and setting.fault is Fault.COMPLETE_UNGUARDED:
        return world._replace(rec=Rec(target, rec.version + 1, rec.token, rec.print, outcome=outcome))
    for name in rows:
        if name == "late_truth" and setting.fault is Fault.NO_LATE_TRUTH:
            continue
        if rec is not None and allowed(setting, name, rec, by_owner(attempt)):
            return world._replace(rec=Rec(target, rec.version + 1, rec.token, rec.print, outcome=outcome))
    return None


# ---- requests ----------------------------------------------------------------------------------------------------


def put(world: World, who: int, phase: str, value: int = NOBODY, row: str = "") -> World:
    """Move one request on. Ends that no rule looks at are made alike, to keep the search small."""
    requests = list(world.requests)
    late = requests[who].late
    if phase is P.MISMATCH or (phase in {P.BUSY, P.UNKNOWN} and not late):
        phase = P.NOTHING
    requests[who] = Req(phase, late and phase not in {P.FINAL, P.NOTHING}, value, row)
    return world._replace(requests=tuple(requests))


def effect(world: World, attempt: int, now: str) -> World:
    """Change what became of one attempt's effect."""
    effects = list(world.effects)
    effects[attempt] = now
    return world._replace(effects=tuple(effects))


def take(setting: Setting, world: World, who: int, *, same_work: bool) -> World:
    """The record after this request took the key."""
    old = world.rec
    state = CLAIMED if setting.latch else EXECUTING
    mine = setting.prints[who]
    mixed = world.mixed or (same_work and old is not None and old.print != mine)
    return world._replace(rec=Rec(state, old.version + 1 if old else 1, who, mine), mixed=mixed)


def stamp(setting: Setting, rec: Rec) -> int:
    """What a compare-and-set compares."""
    return rec.version * 8 + rec.token + 1 if setting.compares_token else rec.version


def decide(setting: Setting, rec: Rec, who: int) -> tuple[str, int, str]:
    """What a request does about the record it sees: the model's own words for core.flows.weigh."""
    same = rec.print == setting.prints[who] or setting.fault is Fault.NO_FINGERPRINT
    if rec.state in IN_PROGRESS and rec.token == who and not rec.over:
        return (P.WON if rec.state is CLAIMED else P.BEGUN), NOBODY, ""
    for row in ("claim_expired", "retry", "take_over"):
        if allowed(setting, row, rec, Facts(NOW, same_request=same)):
            return P.SWAPPING, stamp(setting, rec), row
    if not same:
        return P.MISMATCH, NOBODY, ""
    if rec.state is COMPLETED:
        return P.STORED, rec.outcome, ""
    if rec.state is UNKNOWN and setting.fault is Fault.UNKNOWN_IS_OPEN:
        return P.SWAPPING, stamp(setting, rec), "retry"
    return (P.UNKNOWN if rec.state is UNKNOWN else P.BUSY), NOBODY, ""


def asking(setting: Setting, world: World, who: int) -> Iterator[Step]:
    """Look at the record; a free one is claimed in the same atomic step."""
    if world.rec is not None:
        phase, value, row = decide(setting, world.rec, who)
        yield f"r{who} sees {State(world.rec.state).name}: {phase}", put(world, who, phase, value, row)
    elif setting.fault is Fault.CLAIM_NOT_ATOMIC:
        yield f"r{who} sees nothing", put(world, who, P.SWAPPING, 0, "claim")
    else:
        taken = take(setting, world, who, same_work=False)
        yield f"r{who} claims", put(taken, who, P.WON if setting.latch else P.BEGUN)
        yield f"r{who} claims, the reply is lost", taken


def swapping(setting: Setting, world: World, who: int) -> Iterator[Step]:
    """Take the key if the version still stands; look again if not."""
    me = world.requests[who]
    seen = stamp(setting, world.rec) if world.rec is not None else 0
    if seen == me.value or me.row == "claim" or (world.rec and setting.fault is Fault.SWAP_WITHOUT_VERSION):
        taken = take(setting, world, who, same_work=me.row in {"retry", "take_over"})
        yield f"r{who} {me.row}", put(taken, who, P.WON if setting.latch else P.BEGUN)
    else:
        yield f"r{who} looks again", put(world, who, P.ASKING)


def won(setting: Setting, world: World, who: int) -> Iterator[Step]:
    """Set the latch, or say that nothing was begun."""
    if world.rec is not None and allowed(setting, "begin", world.rec, by_owner(who)):
        begun = world._replace(rec=world.rec._replace(state=EXECUTING, version=world.rec.version + 1))
        yield f"r{who} begins", put(begun, who, P.BEGUN)
    else:
        yield f"r{who} lost its lease", put(world, who, P.NOTHING)
    yield from failing(setting, world, who, "did not begin")


def failing(setting: Setting, world: World, who: int, why: str) -> Iterator[Step]:
    """Declare that nothing was done."""
    after = settle(setting, world, who, FAILED)
    if after is not None:
        yield f"r{who} {why}", put(after, who, P.NOTHING)


def begun(setting: Setting, world: World, who: int) -> Iterator[Step]:
    """Send the effect; in a transaction, commit effect and outcome as one."""
    yield from failing(setting, world, who, "declares no effect")
    if setting.guarantee is Guarantee.TRANSACTIONAL:
        after = settle(setting, world, who, COMPLETED, who)
        if after is None:
            yield f"r{who} rolls back", put(world, who, P.NOTHING)
        else:
            yield f"r{who} commits", put(effect(after, who, E.LANDED), who, P.STORED, who)
    elif world.effects[who] is E.UNSENT:
        yield f"r{who} sends", put(effect(world, who, E.FLYING), who, P.SENT)
    else:
        yield f"r{who} is refused by the receiver", put(world, who, P.NOTHING)


def sent(setting: Setting, world: World, who: int) -> Iterator[Step]:
    """Hear of the effect, or give up waiting."""
    if world.effects[who] is E.LANDED:
        yield f"r{who} hears", put(world, who, P.KNOWN, who)
    elif world.effects[who] is E.REPEATED:
        yield f"r{who} hears the first answer", put(world, who, P.KNOWN, world.effects.index(E.LANDED))
    elif world.effects[who] is E.CANCELLED:
        yield from failing(setting, world, who, "hears a refusal")
    target = FAILED if setting.fault is Fault.TIMEOUT_IS_FAILURE else UNKNOWN
    after = settle(setting, world, who, target)
    yield f"r{who} times out", put(after or world, who, P.UNKNOWN if after else P.NOTHING)
    if setting.fault is Fault.CANCELLATION_RELEASES and world.rec is not None and world.rec.token == who:
        yield f"r{who} is cancelled and releases", put(world._replace(rec=None), who, P.NOTHING)


def known(setting: Setting, world: World, who: int) -> Iterator[Step]:
    """Complete; where that is refused, what stands there is the answer."""
    outcome = world.requests[who].value
    if setting.fault is Fault.ANSWER_FIRST:
        yield f"r{who} answers before it completes", put(world, who, P.OWING, outcome)
        return
    after = settle(setting, world, who, COMPLETED, outcome)
    if after is not None:
        yield f"r{who} completes", put(after, who, P.STORED, outcome)
    elif world.rec is not None and world.rec.state is COMPLETED:
        yield f"r{who} is stale, and reads", put(world, who, P.STORED, world.rec.outcome)
    else:
        yield f"r{who} is stale", put(world, who, P.NOTHING)


def stored(_: Setting, world: World, who: int) -> Iterator[Step]:
    """Give the answer that is in the store."""
    yield f"r{who} answers", put(world, who, P.FINAL, world.requests[who].value)


def owing(setting: Setting, world: World, who: int) -> Iterator[Step]:
    """Complete after the answer was given: only with Fault.ANSWER_FIRST."""
    outcome = world.requests[who].value
    after = settle(setting, world, who, COMPLETED, outcome)
    yield f"r{who} completes at last", put(after or world, who, P.FINAL, outcome)


MOVES = {
    P.ASKING: asking,
    P.SWAPPING: swapping,
    P.WON: won,
    P.BEGUN: begun,
    P.SENT: sent,
    P.KNOWN: known,
    P.STORED: stored,
    P.OWING: owing,
}
