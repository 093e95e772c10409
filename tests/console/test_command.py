"""`oncekey console` as a process."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from oncekey.stores.open import open_store
from tests.cli.running import ONCEKEY, environment, oncekey
from tests.operations.filled import fill


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A file with operations in it."""
    store = open_store(f"sqlite:///{tmp_path}/oncekey.db")
    fill(store)
    store.close()
    return store.url


@contextlib.contextmanager
def served(*words: str, **extra: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and what it says until it listens."""
    command = [ONCEKEY, "console", "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(**extra)) as process:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C ends it" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        try:
            yield process, said
        finally:
            process.terminate()
            process.wait(60)


def test_it_serves_under_a_token_of_its_own(url: str) -> None:
    """The address and a fresh token are printed; the token opens it; SIGTERM ends it well."""
    with served("--store", url) as (process, said):
        found = re.search(r"open   (http://127\.0\.0\.1:\d+/)\n  token  (\S{16,})\n", said)
        assert found is not None
        with httpx.Client(base_url=found[1], timeout=60) as http:
            page = http.get("/")
            assert page.status_code == 401
            form = re.findall(r'name="form" value="([^"]+)"', page.text)[0]
            fields = {"form": form, "name": "Alice", "token": found[2]}
            assert http.post("/login", data=fields, headers={"origin": found[1].rstrip("/")}).status_code == 303
            assert "POST /orders" in http.get("/unknown").text
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_token_that_was_given_is_not_printed(url: str) -> None:
    """It is in the environment, where lists of processes do not show it."""
    with served("--store", url, ONCEKEY_CONSOLE_TOKEN="a token from the environment") as (_, said):
        assert "as ONCEKEY_CONSOLE_TOKEN has it" in said
        assert "a token from" not in said


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--store", "sqlite:///nowhere.db"], 3, "oncekey migrate"),
        ([], 2, "no store was named"),
        (["--store", "{url}", "--host", "256.1.1.1"], 2, "--host"),
        (["--store", "{url}", "--metrics", "metrics"], 2, "http://"),
        (["--store", "redis://127.0.0.1:1/0"], 4, "127.0.0.1"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(
    words: list[str], code: int, says: str, url: str, tmp_path: Path
) -> None:
    """A sentence and a code, before anything listens."""
    ran = oncekey("console", "--port", "0", *(word.format(url=url) for word in words), folder=tmp_path)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err


def test_a_port_that_is_taken_is_said_in_short(url: str) -> None:
    """Another --port is all that is needed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = oncekey("console", "--store", url, "--port", str(port))
    assert (ran.code, ran.out) == (2, "")
    assert f"127.0.0.1:{port} cannot be listened on (Address already in use): write another --host or --port" in ran.err


def test_a_short_token_is_refused(url: str) -> None:
    """One that can be guessed opens nothing."""
    ran = oncekey("console", "--store", url, ONCEKEY_CONSOLE_TOKEN="short")
    assert (ran.code, "token_urlsafe" in ran.err) == (2, True)
