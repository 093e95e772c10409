"""Over real HTTP: uvicorn with one and two workers, and wrk as the client."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from bench.candidates import BARE, BY_NAME, FLOOR, OURS
from bench.cpu import Meter
from bench.http_app import NAME, PHASE, STORE, URL
from bench.line import ROOT
from bench.pieces import Bar, Chart, Note, Piece, Table, number
from bench.rounds import PHASES, Figure, figures, turns
from bench.sections import Bench
from bench.servers import served

BEST_PEER = "fastapi-idempotency-key"  # of those that guard any ASGI application over Redis, the fastest first requests
REPLAYING_PEER = "idemkit"  # and of those whose replays are right
NAMES = (BARE, FLOOR, OURS, BEST_PEER, REPLAYING_PEER)
CONNECTIONS = 32
WORKERS = (1, 2)


def measure(bench: Bench) -> dict[str, Any]:
    """All candidates on Redis, a server for each turn."""
    if shutil.which("wrk") is None:
        return {"settings": [], "lack": "wrk is not installed; run: tools/provision bench"}
    rounds = 1 if bench.quick else 3
    settings: list[dict[str, Any]] = []
    steps = len(WORKERS) * len(PHASES) * rounds
    with served("redis") as store:
        for workers in WORKERS:
            for phase in PHASES:
                found: list[dict[str, Any]] = []
                for number_, names in turns(NAMES, rounds):
                    done = len(settings) * rounds + number_
                    bench.progress(done / steps, f"{workers} workers, {phase}, round {number_ + 1}")
                    seconds = 1.0 if bench.quick else 3.0
                    row = {name: _turn(name, store.url, workers, phase, seconds) for name in names}
                    found.append({name: row[name] for name in NAMES})
                settings.append(_setting(workers, phase, found))
    return {"settings": settings, "lack": ""}


def _setting(workers: int, phase: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [_row(figure, found) for figure in figures(found)]
    return {"workers": workers, "phase": phase, "figures": rows}


def _row(figure: Figure, found: list[dict[str, Any]]) -> dict[str, Any]:
    row = figure._asdict()
    if not figure.broken:
        row |= {share: sorted(each[figure.name][share] for each in found)[len(found) // 2] for share in ("p50", "p99")}
    return row


def _turn(name: str, url: str, workers: int, phase: str, seconds: float) -> dict[str, Any]:
    """One candidate for some seconds: microseconds of wall and of the server's CPU time per request."""
    seed = f"{time.monotonic_ns():x}"
    with _uvicorn(name, url, workers, phase) as (port, pid):
        # A replay's keys are made first; a floor that replays finds nothing then, and its server is another one.
        _wrk(port, "replay", seed, 1.0)
        meter = Meter(lambda: [pid])
        meter.start()
        found = _wrk(port, phase, seed, seconds)
        cpu = meter.spent(max(found["requests"], 1))
    if found["wrong"] or not found["requests"]:
        return {"broken": f"{found['wrong']} of {found['requests']} answers were errors"}
    wall = found["us"] / found["requests"]
    return {"wall": wall, "cpu": cpu, "p50": found["p50"], "p99": found["p99"]}


def _wrk(port: int, phase: str, seed: str, seconds: float) -> dict[str, Any]:
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds:g}s", "-s", str(ROOT / "bench" / "http_load.lua")]
    env = os.environ | {"BENCH_PHASE": phase, "BENCH_SEED": seed}
    done = subprocess.run(
        [*words, f"http://127.0.0.1:{port}/"], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def _uvicorn(name: str, url: str, workers: int, phase: str, store: str = "redis") -> Iterator[tuple[int, int]]:
    """A server on a free port: its port and process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    python = str(ROOT / BY_NAME[name].venv / "bin" / "python")
    words = [python, "-m", "uvicorn", "--factory", "bench.http_app:made", "--port", str(port), "--workers"]
    words += [str(workers), "--no-access-log", "--log-level", "error", "--loop", "asyncio", "--http", "h11"]
    env = os.environ | {NAME: name, STORE: store, URL: url, PHASE: phase}
    process = subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    try:
        _wait(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as asking:
            asking.settimeout(5)
            asking.sendall(b"GET / HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
            if asking.recv(1):
                return
        time.sleep(0.05)
    raise RuntimeError("uvicorn did not answer; its words are above")


HEAD = ("", "requests/s", "p50 ms", "p99 ms", "CPU us", "x floor's speed", "x floor's CPU")


def show(found: dict[str, Any]) -> list[Piece]:
    """A table for each number of workers and phase, and one chart."""
    if found["lack"]:
        return [Note(found["lack"])]
    pieces: list[Piece] = []
    groups = []
    for setting in found["settings"]:
        workers = "one worker" if setting["workers"] == 1 else f"{setting['workers']} workers"
        title = f"{setting['phase']}, {workers}"
        rows = [_cells(row) for row in setting["figures"]]
        pieces.append(Table(f"Redis behind uvicorn, {title}, {CONNECTIONS} connections", HEAD, rows))
        pieces += [Note(f"{row['name']}: {row['broken']}") for row in setting["figures"] if row["broken"]]
        good = [row for row in setting["figures"] if not row["broken"]]
        groups.append((title, [Bar(row["name"], 1e6 / row["wall"], f"{1e6 / row['wall']:,.0f}/s") for row in good]))
    return [*pieces, Chart("http", "Redis behind uvicorn: requests per second", groups)]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["broken"]:
        return (row["name"], "broken", "", "", "", "", "")
    times = (f"{1e6 / row['wall']:,.0f}", number(row["p50"] / 1000), number(row["p99"] / 1000), number(row["cpu"]))
    return (row["name"], *times, number(row["speed"], "x"), number(row["work"], "x"))
