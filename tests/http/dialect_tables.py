"""The tables of docs/dialects.md, made from the data."""

from __future__ import annotations

from oncekey.http.dialects import DIALECTS, Dialect
from oncekey.http.grammar import Verdict
from oncekey.http.problems import PROBLEMS

STATUSES = (400, 401, 402, 403, 404, 408, 409, 422, 425, 429, 500, 503)


def table(title: str, rows: dict[str, list[str]]) -> str:
    """A Markdown table with a column for each dialect."""
    head = [f"| {title} | " + " | ".join(DIALECTS) + " |", "| --- " * (len(DIALECTS) + 1) + "|"]
    return "\n".join(head + [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()])


def headers(pairs: tuple[tuple[bytes, bytes], ...]) -> str:
    """Headers as a reader writes them."""
    return "<br>".join(f"`{name.decode()}: {value.decode()}`" for name, value in pairs) or "none"


def days(seconds: float) -> str:
    """A long duration in the largest unit that fits."""
    return f"{seconds / 86_400:g} d" if seconds >= 86_400 else f"{seconds / 3600:g} h"


def key_in(one: Dialect) -> str:
    """Where the key travels."""
    return f"header `{one.header}`" if one.header else "JSON " + ", ".join(f"`{name}`" for name in one.members)


def request_table() -> str:
    """What a request looks like, and what a replay does."""
    each = DIALECTS.values()
    return table(
        "",
        {
            "key travels in": [key_in(one) for one in each],
            "methods": [", ".join(sorted(one.methods)) for one in each],
            "without a key": ["refused" if one.required else "passes, unprotected" for one in each],
            "length": [f"{one.rule.min_length} to {one.rule.max_length}" for one in each],
            "quotes": ["stripped" if one.rule.quoting == "accept" else "part of the key" for one in each],
            "other endpoint": ["other operation" if one.endpoint == "scope" else "wrong use" for one in each],
            "answers kept": [days(one.keep_for) for one in each],
            "replay marker": [headers(one.marker) for one in each],
            "key sent back": [one.echo for one in each],
            "status of a replay": [
                ", ".join(f"{a} becomes {b}" for a, b in one.replay_statuses.items()) or "as first" for one in each
            ],
            "useful `wait_for`": [f"{one.patience_for:g} s" for one in each if one.patience_for],
        },
    )


def refusal_table() -> str:
    """The status of every refusal."""
    return table(
        "refusal",
        {
            f"[{slug}](problems/{slug}.md)": [str(one.status_of(problem)) for one in DIALECTS.values()]
            for slug, problem in PROBLEMS.items()
        },
    )


def outcome_table() -> str:
    """What becomes of the application's own answers."""
    rows = {"2xx, 3xx": [str(one.outcomes.verdict(200)) for one in DIALECTS.values()]}
    rows |= {str(status): [str(one.outcomes.verdict(status)) for one in DIALECTS.values()] for status in STATUSES}
    rows["other 4xx"] = [str(one.outcomes.client_errors) for one in DIALECTS.values()]
    rows["other 5xx"] = [str(one.outcomes.server_errors) for one in DIALECTS.values()]
    rows["any error with"] = [
        f"{headers((one.outcomes.no_effect_header,))} is {Verdict.RELEASED}" if one.outcomes.no_effect_header else ""
        for one in DIALECTS.values()
    ]
    return table("answer", rows)


TABLES = {"request": request_table, "refusals": refusal_table, "outcomes": outcome_table}
