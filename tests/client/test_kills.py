"""A client that is killed again and again, on a bad link, and goes on from its journal."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from oncekey.client import Journal, Retries
from oncekey.client import journal as journals
from oncekey.client.file import JournalFile
from oncekey.client.httpx import RetryTransport
from tests.client.link import BadLink
from tests.infra.process import free_port

INTENTS, KILLS = 1_000, 300
RETRIES = Retries(attempts=50, wait_for=0.001, longest_wait_for=0.02, budget=None)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[int]:
    """The guarded application, in a process of its own, and its port."""
    port = free_port()
    words = [sys.executable, "-m", "tests.client.shop", str(tmp_path / "ledger.db"), f"sqlite:///{tmp_path}/store.db"]
    process = subprocess.Popen([*words, str(port)], cwd=Path(__file__).parents[2])
    try:
        for _ in range(200):
            try:
                httpx.get(f"http://127.0.0.1:{port}/")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait(20)


class Fuse:
    """Kills the process at the step that it was told: before and after each thing that the client does."""

    def __init__(self, steps: int | None) -> None:
        self.left = steps

    def burn(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def burning(*words: Any, **named: Any) -> Any:
            self.burn()
            done = function(*words, **named)
            self.burn()
            return done

        return burning


def client_program(path: Path, url: str, fuse: Fuse) -> None:
    """What the client does when it is started: go through all intents that have not ended."""
    journal = Journal(path)
    inner = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
    transport = RetryTransport(inner, journal=journal, retries=RETRIES)
    with (
        patch.object(JournalFile, "writing", fuse.around(JournalFile.writing)),
        patch.object(inner, "handle_request", fuse.around(inner.handle_request)),
        patch.object(journals.Journal, "done", fuse.around(journals.Journal.done)),
        httpx.Client(transport=transport, headers={"Authorization": "Bearer a"}, timeout=10) as client,
    ):
        for number in unfinished(path):
            with journal.intent("pay", number):
                client.post(url + "/pay", json={"intent": f"order-{number}"})
                fuse.burn()


def unfinished(path: Path) -> list[int]:
    """The intents that have no answer yet, as a program would know from its own orders."""
    with sqlite3.connect(path) as db:
        done = {row[0] for row in db.execute("SELECT identity FROM intents WHERE state = 'done'")}
    return [number for number in range(INTENTS) if f'["{number}"]' not in done]


def run_once(path: Path, url: str, steps: int | None) -> int:
    """Run the program in a process of its own; return how it ended."""
    child = os.fork()
    if child == 0:
        try:
            client_program(path, url, Fuse(steps))
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_killed_clients_have_one_effect_each(shop: int, tmp_path: Path) -> None:
    """1,000 intents, 300 kills at every step, a link that drops, delays and truncates: one effect, the first answer."""
    path, chance = tmp_path / "intents.db", random.Random(17)
    Journal(path).pending()
    link = BadLink(shop, seed=17)
    killed = 0
    while killed < KILLS:
        killed += run_once(path, link.url, chance.randrange(1, 40)) == -signal.SIGKILL
    assert run_once(path, link.url, None) == 0
    link.close()
    with sqlite3.connect(tmp_path / "ledger.db") as ledger:
        effects = dict(ledger.execute("SELECT intent, made FROM effects"))
        assert ledger.execute("SELECT count(*) FROM effects").fetchone() == (INTENTS,)
    with sqlite3.connect(path) as db:
        told = db.execute("SELECT identity, answer FROM intents WHERE state = 'done' AND status = 201").fetchall()
    assert {f"order-{identity[2:-2]}": answer for identity, answer in told} == {
        intent: f'{{"id":"{made}"}}'.encode() for intent, made in effects.items()
    }
    assert min(link.fates[fate] for fate in ("lose-request", "lose-reply", "cut-reply", "delay")) >= 20
