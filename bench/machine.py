"""Where a run was made: processor, system, versions."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from bench.candidates import MAIN, PEERS
from bench.line import ROOT

VERSIONS = (
    "import importlib.metadata as m, json, sys; "
    "print(json.dumps({n: m.version(n) for n in sys.argv[1:]} | {'python': sys.version.split()[0]}))"
)
OURS = ("orjson", "psycopg", "redis", "hiredis", "starlette", "uvicorn", "rfc8785")
PEER_NAMES = ("idemkit", "fastapi-idempotency", "fastapi-idempotency-key", "ichido", "asgi-idempotency-header")
THEIRS = (*PEER_NAMES, "mobius-idempotence-library", "redis", "starlette", "fastapi")


def facts() -> dict[str, Any]:
    """All of it, as text."""
    return {
        "day": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load": f"{os.getloadavg()[1]:.1f}",
        "servers": {"Redis": _redis(), "PostgreSQL": _postgres(), "SQLite": sqlite3.sqlite_version},
        "ours": _versions(MAIN, OURS),
        "peers": _versions(PEERS, THEIRS),
    }


def _processor() -> str:
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


def _redis() -> str:
    from tests.infra import RedisServer

    return _number([RedisServer.program(), "--version"])


def _postgres() -> str:
    from tests.infra.postgres import programs

    return _number([str(programs() / "postgres"), "--version"])


def _number(words: list[str]) -> str:
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout
    found = re.search(r"\d+\.\d+(\.\d+)?", said)
    return found[0] if found else said.strip()


def _versions(venv: str, names: tuple[str, ...]) -> dict[str, str]:
    """What is installed there; nothing where a run of some sections did without it."""
    import json

    python = ROOT / venv / "bin" / "python"
    if not python.exists():
        return {}
    words = [str(python), "-c", VERSIONS, *names]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, str] = json.loads(done.stdout)
    return found
