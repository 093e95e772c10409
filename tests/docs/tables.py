"""The table of docs/reference/policy.md, made from the fields. `python -m tests.docs.tables` writes it."""

from __future__ import annotations

import re
from dataclasses import fields

from oncekey.core.policy import Policy
from tests.docs.pages import DOCS

PAGE = DOCS / "reference" / "policy.md"
_PLACE = re.compile(r"(<!-- policy -->\n\n).*?\n?(<!-- end -->)", re.DOTALL)


def policy_table() -> str:
    """Each field with its default and its help."""
    rows = [f"| `{one.name}` | {_shown(one.default)} | {one.metadata['help']} |" for one in fields(Policy)]
    return "\n".join(["| field | default | meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _shown(value: object) -> str:
    return f"`{value:,g}`".replace(",", "_") if isinstance(value, float) else f"`{value!r}`"


def with_table(text: str) -> str:
    """The page with the table of today."""
    return _PLACE.sub(lambda found: f"{found[1]}{policy_table()}\n{found[2]}", text)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
