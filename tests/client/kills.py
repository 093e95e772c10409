"""A client that is killed at every step, on a bad link, and goes on from its journal.

python -m tests.client.kills --intents 1000 --kills 300

It ends with code 1 unless there was one effect for each intent, and each intent was told the first answer.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from oncekey.client import Journal, Retries
from oncekey.client import journal as journals
from oncekey.client.file import JournalFile
from oncekey.client.httpx import RetryTransport
from tests.client.link import BadLink
from tests.infra.process import free_port

RETRIES = Retries(attempts=50, wait_for=0.001, longest_wait_for=0.02, budget=None)
PATIENCE = 60.0
WRITING = JournalFile.writing
# Each thing that the client does: before it, and behind it.
STEPS = tuple(
    f"{what}{when}"
    for what in (
        *("Journal.begin", "Journal.sending", "Journal.done", "JournalFile.writing", "HTTPTransport.handle_request"),
        *("connection.connect_tcp", "http11.send_request_headers", "http11.send_request_body"),
        *("http11.receive_response_headers", "http11.receive_response_body", "http11.response_closed"),
    )
    for when in (".started", ".complete")
)


@dataclass
class Run:
    """What was done, and what came of it."""

    intents: int
    kills: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    effects: int = 0
    first_answers: int = 0
    seconds: float = 0.0

    @property
    def held(self) -> bool:
        """One effect for each intent, and the first answer for each."""
        return self.effects == self.first_answers == self.intents

    def __str__(self) -> str:
        link = ", ".join(f"{number} {fate}" for fate, number in self.fates.most_common())
        least = min(self.kills[step] for step in STEPS)
        return (
            f"{self.intents} intents, {self.kills.total()} kills at {len(self.kills)} of {len(STEPS)} steps "
            f"({least} or more at each), in {self.seconds:.0f} s\nexchanges: {link}\n"
            f"effects: {self.effects}, intents that were told the first answer: {self.first_answers}"
        )


class Fuse:
    """Kills the process at the `left`-th time that a step is reached, after having noted that."""

    def __init__(self, step: str, left: int, note: Path) -> None:
        self.step = step
        self.left = left
        self.note = note

    def burn(self, step: str, info: object = None) -> None:
        if step == self.step:
            self.left -= 1
            if self.left == 0:
                self.note.write_text(step, "utf-8")
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def burning(*words: Any, **named: Any) -> Any:
            self.burn(f"{function.__qualname__}.started")
            done = function(*words, **named)
            self.burn(f"{function.__qualname__}.complete")
            return done

        return burning

    def traced(self, send: Callable[[httpx.Request], httpx.Response]) -> Callable[[httpx.Request], httpx.Response]:
        """The steps of one exchange are httpcore's own."""

        def sent(request: httpx.Request) -> httpx.Response:
            request.extensions = {**request.extensions, "trace": self.burn}
            return send(request)

        return sent


def client_program(path: Path, url: str, intents: int, fuse: Fuse) -> None:
    """What the client does when it is started: go through all intents that have not ended."""
    journal = Journal(path)
    inner = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
    transport = RetryTransport(inner, journal=journal, retries=RETRIES)
    with (
        patch.object(JournalFile, "writing", burning_writes(fuse)),
        patch.object(journals.Journal, "begin", fuse.around(journals.Journal.begin)),
        patch.object(journals.Journal, "sending", fuse.around(journals.Journal.sending)),
        patch.object(journals.Journal, "done", fuse.around(journals.Journal.done)),
        patch.object(inner, "handle_request", fuse.traced(fuse.around(inner.handle_request))),
        httpx.Client(transport=transport, headers={"Authorization": "Bearer a"}, timeout=10) as client,
    ):
        for number in unfinished(path, intents):
            with journal.intent("pay", number):
                client.post(url + "/pay", json={"intent": f"order-{number}"})


def burning_writes(fuse: Fuse) -> Any:
    """A transaction: killed before it begins, and behind its commit."""

    @contextmanager
    def burning(file: JournalFile) -> Iterator[sqlite3.Connection]:
        fuse.burn("JournalFile.writing.started")
        with WRITING(file) as db:
            yield db
        fuse.burn("JournalFile.writing.complete")

    return burning


def unfinished(path: Path, intents: int) -> list[int]:
    """The intents that have no answer yet, as a program would know from its own orders."""
    with sqlite3.connect(path) as db:
        done = {row[0] for row in db.execute("SELECT identity FROM intents WHERE state = 'done'")}
    db.close()
    return [number for number in range(intents) if f'["{number}"]' not in done]


def started(path: Path, url: str, intents: int, fuse: Fuse) -> int:
    """Run the program in a process of its own; return how it ended."""
    child = os.fork()
    if child == 0:
        try:
            client_program(path, url, intents, fuse)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def shop(folder: Path) -> Iterator[int]:
    """The guarded application, in a process of its own, and its port."""
    port = free_port()
    words = [sys.executable, "-m", "tests.client.shop", str(folder / "ledger.db"), f"sqlite:///{folder}/store.db"]
    process = subprocess.Popen([*words, str(port)], cwd=Path(__file__).parents[2])
    until = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/")
                break
            except httpx.TransportError:
                assert time.monotonic() < until, "the shop does not answer"
                time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait(PATIENCE)


def run(folder: Path, *, intents: int, kills: int, seed: int = 17) -> Run:
    """Kill it at one step after the other, then let it end."""
    path, note, chance, began = folder / "intents.db", folder / "note", random.Random(seed), time.monotonic()
    done = Run(intents)
    journal = Journal(path)
    journal.pending()
    journal.close()
    with shop(folder) as port:
        link = BadLink(port, seed)
        for number in range(kills):
            step = STEPS[number % len(STEPS)]
            assert started(path, link.url, intents, Fuse(step, chance.randint(1, 3), note)) == -signal.SIGKILL, step
            done.kills[note.read_text("utf-8")] += 1
        assert started(path, link.url, intents, Fuse("", 0, note)) == 0
        link.close()
        done.fates = link.fates
    _judge(done, folder)
    done.seconds = time.monotonic() - began
    return done


def _judge(done: Run, folder: Path) -> None:
    with sqlite3.connect(folder / "ledger.db") as ledger:
        effects = ledger.execute("SELECT intent, made FROM effects").fetchall()
    ledger.close()
    with sqlite3.connect(folder / "intents.db") as db:
        told = db.execute("SELECT identity, answer FROM intents WHERE state = 'done' AND status = 201").fetchall()
    db.close()
    made = {f'["{intent.removeprefix("order-")}"]': f'{{"id":"{made}"}}'.encode() for intent, made in effects}
    done.effects = len(effects)
    done.first_answers = sum(made.get(identity) == answer for identity, answer in told)


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--intents", type=int, default=1_000)
    given.add_argument("--kills", type=int, default=300)
    given.add_argument("--seed", type=int, default=17)
    chosen = given.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = run(Path(folder), intents=chosen.intents, kills=chosen.kills, seed=chosen.seed)
    sys.stdout.write(f"{done}\n")
    return 0 if done.held else 1


if __name__ == "__main__":
    sys.exit(main())
