"""The part of docs/concepts.md that is made from the table. `python -m tests.docs.diagram` writes it anew."""

from __future__ import annotations

from pathlib import Path

from oncekey.core.record import State
from oncekey.core.transitions import TABLE, Row

PAGE = Path(__file__).parents[2] / "docs" / "concepts.md"
BEGIN = "<!-- made from core/transitions.py: begin -->\n"
END = "<!-- made from core/transitions.py: end -->\n"


def generated() -> str:
    """The diagram and the table, as they stand between the markers."""
    return f"```mermaid\n{diagram()}```\n\n{table()}"


def diagram() -> str:
    """TABLE as a Mermaid state diagram; what an operator may do from anywhere would only hide the rest."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in TABLE.values():
        if row.sources != tuple(State):
            for source in row.sources:
                arrows.setdefault((dot(source), dot(target(row, source))), []).append(row.name)
    lines = ["stateDiagram-v2", "    state in_progress {", "        claimed", "        executing", "    }"]
    lines += [f"    {source} --> {to}: {', '.join(names)}" for (source, to), names in arrows.items()]
    return "".join(f"{line}\n" for line in lines)


def table() -> str:
    """TABLE as Markdown."""
    lines = ["| row | from | to | who | only if | what changes |", "| --- | --- | --- | --- | --- | --- |"]
    for row in TABLE.values():
        sources = "any" if row.sources == tuple(State) else ", ".join(words(source) for source in row.sources)
        guards = "; ".join(guard.value for guard in row.guards) or "there is no other record"
        to = "the same" if row.name == "renew" else words(row.target)
        lines.append(f"| `{row.name}` | {sources} | {to} | {row.who} | {guards} | {row.change} |")
    return "".join(f"{line}\n" for line in lines)


def target(row: Row, source: State | None) -> State | None:
    """Where the row leads: a renewal stays where it is."""
    return source if row.name == "renew" else row.target


def dot(state: State | None) -> str:
    """A state in the diagram; absence is where everything starts and ends."""
    return "[*]" if state is None else state.name.lower()


def words(state: State | None) -> str:
    """A state in the table, phase and all."""
    if state is None:
        return "absent"
    return state.word if state.word == state.name.lower() else f"{state.word}/{state.name.lower()}"


def current() -> str:
    """What stands between the markers now."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + generated() + END + rest.partition(END)[2], encoding="utf-8")
