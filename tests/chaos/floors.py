"""How much must have happened for a run to mean anything (R10), by its length."""

from __future__ import annotations

# What a minute of storm brings at the least, on a machine with other things to do.
EACH_MINUTE = {
    "operations": 200,
    "keys": 40,
    "effects": 30,
    "fault: kill at random": 1,
    "fault: kill at the effect": 1,
    "fault: kill at the answer": 1,
    "fault: SIGTERM under load": 1,
    "fault: stop at random": 1,
    "fault: stop at the effect": 1,
    "fault: stop before the effect": 1,
    "fault: rolling restart to the next version": 2,
    "newer record refused": 1,
    "fault: client link: reset": 1,
    "fault: client link: request lost": 1,
    "fault: client link: reply lost": 1,
    "fault: client link: black hole": 1,
    "fault: provider link: request lost": 1,
    "fault: provider link: reply lost": 1,
    "fault: provider link: black hole": 1,
    "lapse swept to unknown": 1,
    "unknown reconciled: done": 2,
    "unknown reconciled: not done": 1,
    "replay": 20,
    "replay after crash": 1,
    "take-over refused": 1,
    "late truth": 1,
    "stale completion refused": 1,
}
OF_SQLITE = {"fault: store locked": 1, "records purged": 1}
OF_A_SERVER = {
    "fault: store killed": 1,
    "fault: store link: reset": 1,
    "fault: store link: request lost": 1,
    "fault: store link: reply lost": 1,
    "fault: store link: black hole": 1,
    "store trouble noticed": 5,
}
# Redis deletes by itself what it keeps for a time.
OF_POSTGRES = OF_A_SERVER | {"records purged": 1}
OWN = {"sqlite": OF_SQLITE, "postgres": OF_POSTGRES, "redis": OF_A_SERVER}
# What a long run is held to, however long it is, and what is so rare that only a long run is held to it.
IN_A_LONG_RUN = {
    "operations": 5000,
    "keys": 500,
    "faults of processes and stores": 150,
    "faults of connections": 500,
    "late effect refused after its cancellation": 1,
}
EACH_KIND = 5
AIMED = {
    f"fault: {name}": 20
    for name in ("kill at the effect", "kill at the answer", "stop at the effect", "stop before the effect")
}
LINKS = ("client link", "provider link")
CUTS = ("request lost", "reply lost", "request cut in the middle", "reply cut in the middle")
ILLS = ("reset", *CUTS, "slow", "black hole")
LONG = 300.0
# Below this much of a storm there is nothing to hold it to.
SHORTEST = 20.0


def floors(store: str, seconds: float) -> dict[str, int]:
    """What a storm of so many seconds on this store must have seen."""
    if seconds < SHORTEST:
        return {}
    own = EACH_MINUTE | OWN[store]
    scaled = {name: max(1, int(least * seconds / 60)) for name, least in own.items()}
    return scaled | in_a_long_run(store, scaled) if seconds >= LONG else scaled


def in_a_long_run(store: str, scaled: dict[str, int]) -> dict[str, int]:
    """The figures of docs/chaos.md, where they are above what the time alone asks for."""
    links = LINKS if store == "sqlite" else (*LINKS, "store link")
    kinds = {f"fault: {link}: {ill}" for link in links for ill in ILLS}
    kinds |= {name for name in scaled if name.startswith("fault: ")}
    wanted = IN_A_LONG_RUN | dict.fromkeys(kinds, EACH_KIND) | AIMED
    return {name: max(least, scaled.get(name, 0)) for name, least in wanted.items()}
