"""What the plan asks of the wire: commands, and the scripts among them."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final, NamedTuple

Argument = bytes | str | int


class Script(NamedTuple):
    """A Lua script: the server knows it by its digest, or is sent its text."""

    text: str
    sha: str


class Command(NamedTuple):
    """One command to the server. `script` is what to send in full when the server does not know its digest."""

    words: tuple[Argument, ...]
    script: Script | None = None

    def in_full(self) -> tuple[Argument, ...]:
        """The command with the script's text in place of its digest."""
        return self.words if self.script is None else ("EVAL", self.script.text, *self.words[2:])


def _script(name: str, *parts: str) -> Script:
    folder = files(__package__) / "scripts"
    texts = [(folder / "parts" / f"{part}.lua").read_text(encoding="utf-8") for part in parts]
    text = "\n".join((*texts, (folder / f"{name}.lua").read_text(encoding="utf-8")))
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


CLAIM: Final = _script("claim", "clock", "card", "write")
SETTLE: Final = _script("settle", "clock", "card", "write")
RENEW: Final = _script("renew", "clock", "card")
SWAP: Final = _script("swap", "clock", "card", "small", "write")
PUT: Final = _script("put", "clock", "card", "write")
LOOK: Final = _script("look", "clock", "card")
WATCH: Final = _script("watch", "clock", "card")
FORGET: Final = _script("forget", "clock", "card", "small")


def call(script: Script, keys: list[bytes], arguments: list[Argument]) -> Command:
    """Run a script on these keys."""
    return Command(("EVALSHA", script.sha, len(keys), *keys, *arguments), script)


def plain(*words: Argument) -> Command:
    """A command of the server's own."""
    return Command(words)
