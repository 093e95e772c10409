"""The search over tests.core.model: all that may happen next, what must never be, and the shortest way there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from oncekey.core.record import FINAL, IN_PROGRESS, State
from oncekey.core.transitions import Facts, lapse_row
from tests.core.model import (
    COMPLETED,
    FAILED,
    MOVES,
    NOBODY,
    NOW,
    UNKNOWN,
    E,
    Fault,
    P,
    Rec,
    Setting,
    Step,
    World,
    allowed,
    effect,
    put,
    record_of,
    stamp,
    start,
)


def steps(setting: Setting, world: World) -> Iterator[Step]:
    """All that may happen next."""
    for who, request in enumerate(world.requests):
        if request.phase is P.IDLE:
            # Requests are alike but for their fingerprint: they come in order. Each is sent when it first looks: one
            # that was sent earlier has a weaker claim to a final answer and nothing else. No break is lost by either.
            heard = any(one.phase in {P.FINAL, P.OWING} for one in world.requests)
            requests = list(world.requests)
            requests[who] = requests[who]._replace(phase=P.ASKING, late=heard)
            yield from MOVES[P.ASKING](setting, world._replace(requests=tuple(requests)), who)
            break
        if request.phase in MOVES:
            yield from MOVES[request.phase](setting, world, who)
            if request.phase is not P.ASKING:
                answered = request.phase is P.OWING
                yield (
                    f"r{who} crashes",
                    put(world, who, P.FINAL, request.value) if answered else put(world, who, P.NOTHING),
                )
    yield from receiver(setting, world)
    yield from time_passes(setting, world)
    yield from reconciler(setting, world)
    yield from mishaps(setting, world)


def receiver(setting: Setting, world: World) -> Iterator[Step]:
    """What is in flight lands, late or never; a receiver may deduplicate, or fence off older attempts."""
    for attempt, one in enumerate(world.effects):
        if one is not E.FLYING:
            continue
        landed = [other for other, state in enumerate(world.effects) if state is E.LANDED]
        if setting.receiver == "deduplicates" and landed:
            yield f"effect {attempt} is a repeat", effect(world, attempt, E.REPEATED)
        elif setting.receiver == "fences" and landed and max(landed) > attempt:
            yield f"effect {attempt} is fenced off", effect(world, attempt, E.CANCELLED)
        else:
            yield f"effect {attempt} lands", effect(world, attempt, E.LANDED)


def time_passes(setting: Setting, world: World) -> Iterator[Step]:
    """A lease ends; a sweep notices. Retention ends only where a setting lets it."""
    rec = world.rec
    if rec is None:
        return
    if rec.state in IN_PROGRESS and not rec.over:
        yield "the lease ends", world._replace(rec=rec._replace(over=True))
    if rec.state in IN_PROGRESS:
        name = lapse_row(record_of(rec, setting.guarantee))
        if allowed(setting, name, rec, Facts(NOW)):
            unknown = name == "lapse_executing"
            state, token = (UNKNOWN, rec.token) if unknown else (FAILED, NOBODY)
            yield f"{name}", world._replace(rec=Rec(state, rec.version + 1, token, rec.print))
    expires = setting.failures_expire and rec.state is FAILED
    if rec.state in FINAL and not rec.over and (expires or setting.fault is Fault.RETENTION_TOO_SHORT):
        yield "retention ends", world._replace(rec=rec._replace(over=True))
    if allowed(setting, "expire", rec, Facts(NOW)):
        yield "purge", world._replace(rec=None)


def reconciler(setting: Setting, world: World) -> Iterator[Step]:
    """Cancel at the receiver, then read, then write on the version that was seen."""
    step, version, seen = world.reconciler
    rec = world.rec
    if step == 0 and rec is not None and rec.state is UNKNOWN:
        careful = setting.fault is not Fault.READ_WITHOUT_CANCEL
        cancelled = (
            effect(world, rec.token, E.CANCELLED)
            if careful and world.effects[rec.token] in {E.UNSENT, E.FLYING}
            else world
        )
        yield "reconciler cancels", cancelled._replace(reconciler=(1, stamp(setting, rec), False))
    elif step == 1 and (rec is None or stamp(setting, rec) != version):
        yield "reconciler gives up", world._replace(reconciler=(0, 0, False))
    elif step == 1 and rec is not None:
        yield (
            "reconciler reads",
            world._replace(reconciler=(2, version, world.effects[rec.token] in {E.LANDED, E.REPEATED})),
        )
    elif step == 2:
        after = world._replace(reconciler=(0, 0, False))
        name = "reconcile_done" if seen else "reconcile_not_done"
        facts = Facts(NOW, effect_seen=seen, cannot_land=setting.fault is not Fault.READ_WITHOUT_CANCEL)
        stands = rec is not None and (stamp(setting, rec) == version or setting.fault is Fault.SWAP_WITHOUT_VERSION)
        if rec is not None and stands and allowed(setting, name, rec, facts):
            outcome = world.effects.index(E.LANDED) if seen else NOBODY
            state = COMPLETED if seen else FAILED
            after = after._replace(rec=Rec(state, rec.version + 1, NOBODY, rec.print, outcome=outcome))
        yield name, after


def mishaps(setting: Setting, world: World) -> Iterator[Step]:
    """What a careless purge or a forgetful store does."""
    lost: dict[Fault, tuple[int, ...]] = {
        Fault.PURGE_IN_PROGRESS: IN_PROGRESS,
        Fault.PURGE_UNKNOWN: (UNKNOWN,),
        Fault.RECORD_LOST: tuple(State),
    }
    if world.rec is not None and world.rec.state in lost.get(setting.fault, ()):
        yield "the record is removed", world._replace(rec=None)


# ---- what must never be ------------------------------------------------------------------------------------------


def one_effect(_: Setting, world: World) -> bool:
    """I1: at most one effect."""
    return world.effects.count(E.LANDED) <= 1


def agreement(_: Setting, world: World) -> bool:
    """I2: all final answers are identical."""
    return len({one.value for one in world.requests if one.phase in {P.FINAL, P.OWING}}) <= 1


def truth(_: Setting, world: World) -> bool:
    """I3: a final success implies that its effect exists."""
    finals = (one.value for one in world.requests if one.phase in {P.FINAL, P.OWING})
    return all(value != NOBODY and world.effects[value] is E.LANDED for value in finals)


def fingerprints(setting: Setting, world: World) -> bool:
    """I7: a different fingerprint neither runs nor sees the stored answer."""
    finals = ((setting.prints[who], one.value) for who, one in enumerate(world.requests) if one.phase is P.FINAL)
    return not world.mixed and all(value == NOBODY or setting.prints[value] == mine for mine, value in finals)


def real_time(_: Setting, world: World) -> bool:
    """I13: a request sent after somebody had a final answer gets that answer, never busy or unknown."""
    return not any(one.late and one.phase in {P.BUSY, P.UNKNOWN} for one in world.requests)


INVARIANTS: dict[str, Callable[[Setting, World], bool]] = {
    "I1": one_effect,
    "I2": agreement,
    "I3": truth,
    "I7": fingerprints,
    "I13": real_time,
}


class Found(NamedTuple):
    """What a search found: reachable states, and the shortest trace to a break of each invariant that breaks."""

    states: int
    broken: dict[str, list[str]]
    worlds: Collection[World]

    def shortest(self) -> dict[str, int]:
        """The lengths of the traces."""
        return {name: len(trace) for name, trace in self.broken.items()}


def search(setting: Setting, wanted: frozenset[str] = frozenset()) -> Found:
    """Breadth first through all that may happen; stops early once every wanted break was found."""
    first = start(setting)
    came: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    broken: dict[str, list[str]] = {}
    while queue:
        world = queue.popleft()
        for label, after in steps(setting, world):
            if after in came:
                continue
            came[after] = (world, label)
            for name, holds in INVARIANTS.items():
                if name not in broken and not holds(setting, after):
                    broken[name] = trace_to(after, came)
            if wanted and wanted <= broken.keys():
                return Found(len(came), broken, came.keys())
            queue.append(after)
    return Found(len(came), broken, came.keys())


def trace_to(world: World, came: dict[World, tuple[World, str] | None]) -> list[str]:
    """The steps from the start to this world."""
    trace = []
    at = came[world]
    while at is not None:
        world, label = at
        trace.append(label)
        at = came[world]
    return trace[::-1]
