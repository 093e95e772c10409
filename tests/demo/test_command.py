"""`oncekey demo` on the terminal: what it says, how it ends, and how it refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.demo.server import PATIENCE, DemoServer, until


def refused(*words: str, folder: Path) -> tuple[int, str]:
    """Run a demo that cannot start; its exit code and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "oncekey.cli.app", "demo", *words],
        check=False, capture_output=True, text=True, timeout=PATIENCE, cwd=folder,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_a_taken_port_is_said_with_the_way_out(demo: DemoServer, tmp_path: Path) -> None:
    """One sentence, with another port to write."""
    code, told = refused("--port", str(demo.port), folder=tmp_path)
    assert code == 2
    assert f"port {demo.port} on 127.0.0.1 is taken" in told
    assert f"--port {demo.port + 1}" in told


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--store", "memory://", "--workers", "2"], 2, "--workers 1"),
        (["--store", "sqlit:///x.db"], 2, "did you mean sqlite://"),
        (["--host", "no.such.host.invalid"], 2, "--host 127.0.0.1"),
        (["--host", "203.0.113.9"], 2, "is not an address to listen on"),
        (["--store", "redis://127.0.0.1:1"], 4, "127.0.0.1:1"),
        (["--store", "postgresql://u:verysecret@127.0.0.1:1/x"], 4, "127.0.0.1"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(words: list[str], code: int, sentence: str, tmp_path: Path) -> None:
    """Exit code 2 for what was written, 4 for a store that does not answer; no trace, no password."""
    port = [] if "--port" in words else ["--port", "0"]
    found, told = refused(*words, *port, folder=tmp_path)
    assert (found, sentence in told, "verysecret" in told) == (code, True, False), told


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    """Where the demo's folder should be there is a file."""
    (tmp_path / "oncekey-demo").write_text("in the way")
    code, told = refused("--port", "0", folder=tmp_path)
    assert code == 2
    assert "cannot be made" in told


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly(number: signal.Signals, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C and SIGTERM end all workers with code 0, nothing on the terminal but words, and no file left behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with DemoServer(workers=workers) as demo:
        log, process = Path(demo.folder, "log"), demo._process
        assert process is not None
        until(lambda: "Listening on" in log.read_text())
        os.killpg(demo.pid, number)
        assert process.wait(PATIENCE) == 0
        told = log.read_text()
        assert f"Listening on {demo.url}" in told
        assert f"curl -i {demo.url}/orders" in told
        assert told.rstrip().endswith("it goes on from there.")
        assert "Traceback" not in told
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", demo.port))
    assert not list(tmp_path.iterdir())


def test_workers_end_with_a_starter_that_was_killed() -> None:
    """Nobody is left on the port after kill -9 of the process that was started."""
    with DemoServer() as demo:
        os.kill(demo.pid, signal.SIGKILL)
        until(lambda: not demo.answers())
